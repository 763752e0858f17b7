#include "longhaul/cluster/verdict/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "longhaul/base/exit_code.h"
#include "longhaul/base/text.h"

namespace longhaul::cluster {
namespace {

/// Returns whether the rank's error is another rank's, or only says that another rank did
/// not come.
bool is_consequence(const ObservedRank& rank) {
  return rank.told || rank.failure.find("[comm]") != std::string::npos ||
         rank.failure.find("mpirun ends the job") != std::string::npos;
}

/// Returns whether ranks found different weights. Such an error calls for a restart, as a
/// full disk does, but it is the fault of a node or of the program.
bool is_corruption(const ObservedRank& rank) {
  return rank.failure.find("[corruption]") != std::string::npos;
}

/// Returns whether a run that was asked to stop ends with this exit code.
bool was_asked(int exit_code) {
  return exit_code == kExitTemporary || exit_code == kExitStopped;
}

/// Returns how close a failure is to the cause: 0 is closest, and 5 stands for no
/// failure.
int order_of(const ObservedRank& rank) {
  if (rank.exit_code == kExitSettings) return 0;
  if (!rank.failure.empty() && !is_consequence(rank)) return 1;
  if (rank.killed()) return 2;
  if (rank.exit_code > 0 && !was_asked(rank.exit_code) && rank.failure.empty()) return 3;
  if (!rank.failure.empty()) return 4;
  return 5;
}

std::string how_killed(const ObservedRank& rank, const LauncherEnd& launcher) {
  auto said = launcher.signals.find(rank.rank);
  if (said == launcher.signals.end()) said = launcher.signals.find(-1);
  if (said == launcher.signals.end()) return "ended without a message (killed)";
  return fmt::format("killed by signal {}", said->second);
}

/// Returns a text that says that the kernel has killed processes of the rank's cgroup for
/// want of memory, and what to do; empty if it has killed none.
std::string why_killed(const ObservedRank& rank) {
  if (rank.memory_kills == 0) return {};
  const std::string limit =
      rank.memory_limit > 0
          ? fmt::format("its cgroup's limit of {}", human_bytes(rank.memory_limit))
          : "the machine's memory";
  return fmt::format(
      ": out of memory ({}), so the kernel has killed {} there; raise the limit (Slurm: "
      "--mem=0 or --mem-per-cpu, a container: --memory), or use a smaller "
      "batch.micro_size or more ranks on more machines",
      limit, counted(rank.memory_kills, "process", "processes"));
}

Fault fault_of(const ObservedRank& rank, const LauncherEnd& launcher) {
  Fault fault;
  fault.rank = rank.rank;
  fault.node = rank.node;
  const int order = order_of(rank);
  fault.kind = order == 0   ? FaultKind::Settings
               : order == 2 ? FaultKind::Killed
               : order == 4 ? FaultKind::Communication
                            : FaultKind::Error;
  fault.temporary = fault.kind == FaultKind::Error && rank.exit_code == kExitTemporary &&
                    !is_corruption(rank);
  if (fault.kind == FaultKind::Killed) {
    fault.text =
        fmt::format("{} {} in step {} phase {}{}", rank.name(),
                    how_killed(rank, launcher), rank.step, rank.phase, why_killed(rank));
  } else if (rank.failure.empty()) {
    fault.text = fmt::format("{} ended with exit code {}", rank.name(), rank.exit_code);
  } else {
    fault.text = fmt::format("{}: {}", rank.name(), rank.failure);
  }
  return fault;
}

/// Returns the fault of a rank that ended with an error before it had a record, such as
/// one whose node lacks the program; nothing if the launcher tells of none.
std::optional<Fault> fault_without_record(const RankList& ranks,
                                          const LauncherEnd& launcher) {
  for (const auto& [rank, exit] : launcher.exits) {
    if (std::ranges::find(ranks, rank, &ObservedRank::rank) != ranks.end()) continue;
    if (was_asked(exit.code) && was_asked(launcher.exit_code)) continue;
    return Fault{
        .kind = exit.code == kExitSettings ? FaultKind::Settings : FaultKind::Error,
        .rank = rank,
        .node = exit.node,
        .temporary = exit.code == kExitTemporary,
        .text = fmt::format("rank {} on {} ended with exit code {} before it began", rank,
                            exit.node, exit.code)};
  }
  for (const auto& [rank, number] : launcher.signals) {
    // SIGKILL and SIGTERM may come from the launcher when it ends the ranks that are
    // left.
    if (!ranks.empty() || number == SIGKILL || number == SIGTERM) continue;
    const std::string who = rank < 0 ? "a rank was" : fmt::format("rank {}", rank);
    return Fault{
        .kind = FaultKind::Killed,
        .rank = rank,
        .text = fmt::format("{} killed by signal {} before it began", who, number)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Fault> find_fault(const RankList& ranks,
                                const std::optional<LauncherEnd>& launcher) {
  const ObservedRank* first = nullptr;
  const auto before = [](const ObservedRank& a, const ObservedRank& b) {
    const int order_a = order_of(a);
    const int order_b = order_of(b);
    if (order_a != order_b) return order_a < order_b;
    // If rank 0 fails in work that it does for all ranks, all ranks end with the same
    // message.
    const bool same = !a.failure.empty() && a.failure == b.failure;
    return same ? a.rank < b.rank : a.gone_age > b.gone_age;
  };
  int64_t step = 0;
  std::set<std::string> nodes;
  std::set<std::string> with_errors;
  for (const ObservedRank* rank : ranks) {
    step = std::max(step, rank->step);
    nodes.insert(rank->node);
    if (order_of(*rank) == 1) with_errors.insert(rank->node);
    if (!rank->failed() || order_of(*rank) == 5) continue;
    if (first == nullptr || before(*rank, *first)) first = rank;
  }
  if (launcher && (first == nullptr || order_of(*first) >= 2)) {
    if (auto fault = fault_without_record(ranks, *launcher)) {
      fault->step = step;
      return fault;
    }
  }
  if (first != nullptr) {
    Fault fault = fault_of(*first, launcher.value_or(LauncherEnd{}));
    fault.step = step;
    fault.of_node = fault.temporary && 2 * with_errors.size() <= nodes.size();
    return fault;
  }
  if (!launcher || launcher->exit_code == 0 || was_asked(launcher->exit_code)) {
    return std::nullopt;
  }
  Fault fault;
  fault.kind =
      launcher->exit_code == kExitSettings ? FaultKind::Settings : FaultKind::Launcher;
  fault.step = step;
  const std::string& why =
      launcher->cause.empty() ? launcher->last_line : launcher->cause;
  fault.text = fmt::format(
      "the launcher ended with exit code {}{}{}", launcher->exit_code,
      ranks.empty() ? " before any rank had begun" : "", why.empty() ? "" : ": " + why);
  return fault;
}

}  // namespace longhaul::cluster
