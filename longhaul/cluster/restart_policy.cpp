#include "longhaul/cluster/restart_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace longhaul::cluster {

bool RestartPolicy::same_as_before(const Fault& fault) const {
  // A node that went away says nothing of the step it happened in.
  return before_ && fault.kind != FaultKind::Node && before_->kind == fault.kind &&
         before_->temporary == fault.temporary && before_->step == fault.step;
}

Decision RestartPolicy::decide(const Fault& fault) {
  Decision decision;
  same_ = same_as_before(fault) ? same_ + 1 : 1;
  const bool progress = fault.step > furthest_;
  without_progress_ = progress ? 0 : without_progress_ + 1;
  furthest_ = std::max(furthest_, fault.step);
  const bool same_node = before_ && !fault.node.empty() && before_->node == fault.node;
  // The rank that tells of a full disk is not at fault, nor is its node.
  on_node_ = fault.temporary ? 0 : same_node ? on_node_ + 1 : 1;
  before_ = fault;
  decision.exclude_node =
      !fault.node.empty() && fault.kind != FaultKind::Settings &&
      (fault.kind == FaultKind::Node || on_node_ >= rules_.node_fault_limit);
  if (fault.kind == FaultKind::Settings) {
    decision.reason = "a setting or an input is wrong: a restart cannot help";
    return decision;
  }
  if (fault.kind == FaultKind::Node && !rules_.node_faults) {
    decision.reason = "the platform replaces nodes and starts the job's step again";
    return decision;
  }
  // Waited for as well: a launcher that has worked before. Slurm may not know at once
  // what is free.
  const bool patient =
      fault.temporary || (fault.kind == FaultKind::Launcher && furthest_ > 0);
  if (same_ >= (patient ? rules_.temporary_fault_limit : rules_.same_fault_limit)) {
    decision.reason = fmt::format(
        "the same fault ({}) at step {} for the {}. time in a "
        "row; mend its cause, then start again",
        fault_name(fault.kind), fault.step, same_);
    return decision;
  }
  if (restarts_ >= rules_.max_restarts) {
    decision.reason =
        fmt::format("resilience.max_restarts = {} are used up", rules_.max_restarts);
    return decision;
  }
  ++restarts_;
  decision.restart = true;
  if (without_progress_ > 0) {
    decision.delay_seconds =
        std::min(rules_.longest_delay_seconds,
                 rules_.first_delay_seconds * std::pow(2.0, without_progress_ - 1));
  }
  return decision;
}

}  // namespace longhaul::cluster
