#include "longhaul/cluster/verdict/hang_watch.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "longhaul/cluster/names.h"

namespace longhaul::cluster {
namespace {

constexpr double kPatience = 5.0;
/// This factor takes the place of kPatience for starts. Starts read gigabytes from a cold
/// disk, so that one start says less of the next.
constexpr double kStartPatience = 20.0;

size_t index(WorkKind kind) { return static_cast<size_t>(kind); }

/// Returns how many steps each rank has done at least.
int64_t least_steps(const RankList& ranks) {
  if (ranks.empty()) return 0;
  return std::ranges::min(ranks, {}, &ObservedRank::steps_done)->steps_done;
}

}  // namespace

const char* work_name(WorkKind kind) {
  constexpr NamesOf<WorkKind, kWorkKinds> kNames{
      {"start", "step", "validation", "save", "waiting for a save"}};
  return kNames.of(kind);
}

WorkKind work_of(const RankList& ranks) {
  const auto any_at = [&](std::string_view phase) {
    return std::ranges::any_of(
        ranks, [&](const ObservedRank* rank) { return rank->phase == phase; });
  };
  if (any_at(run::kSavePhase)) return WorkKind::Save;
  if (any_at(run::kSaveWaitPhase)) return WorkKind::SaveWait;
  if (any_at(run::kValidationPhase)) return WorkKind::Validation;
  const bool began = std::ranges::all_of(
      ranks, [](const ObservedRank* rank) { return rank->steps_done > 0; });
  return ranks.empty() || !began ? WorkKind::Start : WorkKind::Step;
}

double HangWatch::limit(WorkKind kind) const {
  const double longest = longest_[index(kind)];
  if (kind == WorkKind::Start) {
    if (longest == 0.0) {
      return std::max(
          {limits_.start_seconds, limits_.unlearned_seconds, limits_.quiet_seconds});
    }
    return std::max(
        {limits_.start_seconds, limits_.quiet_seconds, kStartPatience * longest});
  }
  // While a save waits for its last bytes to become durable, nothing is seen to move.
  const double of_saves = kind == WorkKind::SaveWait ? kPatience * longest : 0.0;
  if (limits_.quiet_seconds > 0.0) return std::max(limits_.quiet_seconds, of_saves);
  const bool learned = longest > 0.0 || (kind == WorkKind::Step && saw_steps_);
  if (!learned) return limits_.unlearned_seconds;
  const bool saves = kind == WorkKind::Save || kind == WorkKind::SaveWait;
  const double least = saves ? limits_.least_save_seconds : limits_.least_seconds;
  return std::max(least, kPatience * longest);
}

/// Learns from the lengths of phases that the ranks report: a save or a validation may
/// begin and end between two looks.
void HangWatch::learn_phases(const RankList& ranks) {
  for (const auto& [phase, kind] :
       {std::pair{run::kSavePhase, WorkKind::Save},
        std::pair{run::kSaveWaitPhase, WorkKind::SaveWait},
        std::pair{run::kValidationPhase, WorkKind::Validation}}) {
    double& longest = longest_[index(kind)];
    for (const ObservedRank* rank : ranks) {
      const auto found = rank->longest_phases.find(std::string(phase));
      if (found != rank->longest_phases.end()) longest = std::max(longest, found->second);
    }
  }
}

std::optional<double> HangWatch::look(const RankList& ranks, double started_seconds,
                                      double awake_seconds) {
  // Ranks have no record while they wait for each other in MPI's own start.
  double quiet = ranks.empty() ? started_seconds : ranks.front()->progress_age;
  for (const ObservedRank* rank : ranks) quiet = std::min(quiet, rank->progress_age);
  quiet = std::min(quiet, awake_seconds);
  learn_phases(ranks);
  const WorkKind kind = work_of(ranks);
  // The ranks are quiet for less time than before, so the former pause has ended by
  // itself.
  if (quiet < quiet_before_) {
    double& longest = longest_[index(kind_before_)];
    longest = std::max(longest, quiet_before_);
  }
  quiet_before_ = quiet;
  kind_before_ = kind;
  // Steps of milliseconds end before their age is seen, but their number shows that they
  // end.
  const int64_t steps = least_steps(ranks);
  saw_steps_ = saw_steps_ || (steps_before_ > 0 && steps > steps_before_);
  steps_before_ = steps;
  if (quiet <= limit(kind)) return std::nullopt;
  return quiet;
}

void HangWatch::restart() {
  quiet_before_ = 0.0;
  kind_before_ = WorkKind::Start;
  steps_before_ = 0;
}

}  // namespace longhaul::cluster
