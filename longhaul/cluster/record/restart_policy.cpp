#include "longhaul/cluster/record/restart_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace longhaul::cluster {
namespace {

bool dies_by_itself(FaultKind kind) {
  return kind == FaultKind::Killed || kind == FaultKind::Error;
}

}  // namespace

bool RestartPolicy::same_as_before(const Fault& fault) const {
  if (!counts_.before) return false;
  const Fault& before = *counts_.before;
  // Any death before the first step is one kind of fault. A program that cannot run is
  // sometimes seen to be killed and sometimes to end with an error.
  const bool same_kind =
      before.kind == fault.kind ||
      (fault.step == 0 && dies_by_itself(before.kind) && dies_by_itself(fault.kind));
  // The loss of a node says nothing of the step in which it happened.
  return fault.kind != FaultKind::Node && same_kind &&
         before.temporary == fault.temporary && before.step == fault.step;
}

Decision RestartPolicy::decide(const Fault& fault) {
  Decision decision;
  counts_.same = same_as_before(fault) ? counts_.same + 1 : 1;
  const bool progress = fault.step > counts_.furthest;
  counts_.without_progress = progress ? 0 : counts_.without_progress + 1;
  counts_.furthest = std::max(counts_.furthest, fault.step);
  const bool same_node =
      counts_.before && !fault.node.empty() && counts_.before->node == fault.node;
  counts_.left_out = counts_.left_out && !progress;
  // A rank that reports a full disk is not at fault. Its node is at fault only if the
  // disk is full for that node alone.
  const bool of_node = !fault.temporary || (fault.of_node && !counts_.left_out);
  counts_.on_node = !of_node ? 0 : same_node ? counts_.on_node + 1 : 1;
  counts_.before = fault;
  decision.exclude_node =
      !fault.node.empty() && fault.kind != FaultKind::Settings &&
      (fault.kind == FaultKind::Node || counts_.on_node >= rules_.node_fault_limit);
  if (fault.temporary && decision.exclude_node) counts_.left_out = true;
  if (fault.kind == FaultKind::Settings) {
    decision.reason = "a setting or an input is wrong: a restart cannot help";
    return decision;
  }
  if (fault.kind == FaultKind::Node && !rules_.node_faults) {
    decision.reason = "the platform replaces nodes and starts the job's step again";
    return decision;
  }
  // A launcher that has worked before is tried again as often as after a temporary error,
  // since Slurm may not know at once which nodes are free.
  const bool patient =
      fault.temporary || (fault.kind == FaultKind::Launcher && counts_.furthest > 0);
  if (counts_.same >=
      (patient ? rules_.temporary_fault_limit : rules_.same_fault_limit)) {
    decision.reason = fmt::format(
        "the same fault ({}) at step {} for the {}. time in a row; remove its cause, "
        "then start again",
        fault_name(fault.kind), fault.step, counts_.same);
    decision.used_up = true;
    return decision;
  }
  if (counts_.restarts >= rules_.max_restarts) {
    decision.reason = fmt::format(
        "resilience.max_restarts = {} are used up by this job; mend the common cause of "
        "its faults, then submit the run again (a new job counts from zero), or raise "
        "the limit",
        rules_.max_restarts);
    decision.used_up = true;
    return decision;
  }
  ++counts_.restarts;
  decision.restart = true;
  if (counts_.without_progress > 0) {
    decision.delay_seconds = std::min(
        rules_.longest_delay_seconds,
        rules_.first_delay_seconds * std::pow(2.0, counts_.without_progress - 1));
  }
  return decision;
}

}  // namespace longhaul::cluster
