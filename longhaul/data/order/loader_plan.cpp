#include "longhaul/data/order/loader_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

/// The most sequences of a run. Below this limit places in a stream and their products
/// with shares fit into 64 bits.
constexpr int64_t kMaxSequences = int64_t{1} << 60;

/// Returns the weights of a step, which are the weights of the last change up to the
/// step.
std::vector<double> weights_at(const std::vector<WeightedSource>& sources,
                               const LoaderOptions& options, int64_t step) {
  std::vector<double> weights;
  for (const WeightedSource& source : sources) weights.push_back(source.weight);
  for (const WeightChange& change : options.changes) {
    if (change.step > step) break;
    weights = change.weights;
  }
  LH_CHECK(weights.size() == sources.size(), "data", "{} weights for {} sources",
           weights.size(), sources.size());
  return weights;
}

/// Returns the last step before the weights change again, at most the run's last step.
int64_t last_step_of_phase(const LoaderOptions& options, int64_t step) {
  for (const WeightChange& change : options.changes) {
    if (change.step > step) return std::min(change.step - 1, options.last_step);
  }
  return options.last_step;
}

/// Returns the first of the phase's next `steps` steps after which more than `limit`
/// sequences of a source have been read.
int64_t step_of_excess(const PhaseStream& stream, const LoaderOptions& options,
                       size_t source, int64_t consumed, int64_t steps, double limit) {
  int64_t low = 1;
  int64_t high = steps;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (stream.had(consumed + middle * options.global_size)[source] > limit) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

[[noreturn]] void fail_excess(const WeightedSource& source, double epochs, int64_t step,
                              const LoaderOptions& options) {
  fail_config("data",
              "{}: max_epochs = {} is used up at step {} of {}; with these weights the "
              "source would be read {:.3f} times. Lower its weight, take the source out "
              "from step {} on with data.changes, shorten the run, or raise max_epochs",
              source.name, *source.max_epochs, step, options.last_step, epochs, step);
}

}  // namespace

Phase make_phase(const std::vector<WeightedSource>& sources, const LoaderOptions& options,
                 int64_t step) {
  LH_CHECK(!sources.empty(), "data", "a loader without sources");
  const std::vector<double> weights = weights_at(sources, options, step);
  Phase phase;
  phase.seq_len = sources.front().source->seq_len();
  phase.shuffle = options.shuffle;
  phase.seed = options.seed;
  for (size_t i = 0; i < sources.size(); ++i) {
    const TokenSource& source = *sources[i].source;
    if (source.seq_len() != phase.seq_len) {
      fail_config("data",
                  "{}: its sequences have {} tokens, but those of other sources have {}; "
                  "all sources of a run must have one sequence length",
                  source.describe(), source.seq_len(), phase.seq_len);
    }
    if (const TokenSource& first = *sources.front().source;
        source.losses() != first.losses()) {
      fail_config("data",
                  "{} has targets for {}, but {} has targets for {}; all sources of a "
                  "run must have the same targets",
                  sources.front().name, fmt::join(first.losses(), " and "),
                  sources[i].name, fmt::join(source.losses(), " and "));
    }
    if (source.num_sequences() < 1) {
      fail_config("data",
                  "{}: the source does not fill one sequence of {} tokens; choose a "
                  "smaller data.seq_len or more text",
                  source.describe(), source.seq_len());
    }
    phase.sources.push_back(
        {source.fingerprint(), weights[i], source.num_sequences(), sources[i].name});
  }
  return phase;
}

Cursor enter_step(Cursor cursor, const Phase& phase) {
  std::vector<Phase>& phases = cursor.phases;
  if (!phases.empty() && phases.back().same_stream(phase)) return cursor;
  if (!phases.empty() && phases.back().consumed == 0) phases.pop_back();
  // After an empty phase is removed, the phase before it may be the same stream.
  if (!phases.empty() && phases.back().same_stream(phase)) return cursor;
  cursor.begin_phase(phase);
  return cursor;
}

std::vector<SourcePlan> plan_sources(const std::vector<WeightedSource>& sources,
                                     const LoaderOptions& options, const Cursor& cursor,
                                     std::shared_ptr<const PhaseStream> in_force) {
  std::vector<SourcePlan> plan(sources.size());
  const int64_t all_steps = options.last_step - options.first_step + 1;
  if (all_steps < 1) return {};
  LH_CHECK(all_steps <= kMaxSequences / options.global_size, "data",
           "{} steps of {} sequences", all_steps, options.global_size);
  std::vector<double> planned(sources.size(), 0.0);
  Cursor at = cursor;
  for (int64_t step = options.first_step; step <= options.last_step;) {
    if (step > options.first_step) {
      at = enter_step(std::move(at), make_phase(sources, options, step));
      in_force = std::make_shared<PhaseStream>(at.phases);
    }
    const PhaseStream& stream = *in_force;
    const int64_t steps = last_step_of_phase(options, step) - step + 1;
    int64_t& consumed = at.phases.back().consumed;
    const std::vector<double> before = stream.had(consumed);
    const std::vector<double> after = stream.had(consumed + steps * options.global_size);
    for (size_t i = 0; i < sources.size(); ++i) {
      const auto size = static_cast<double>(sources[i].source->num_sequences());
      plan[i].name = sources[i].name;
      plan[i].epochs = after[i] / size;
      planned[i] += after[i] - before[i];
      const double limit = sources[i].max_epochs.value_or(0.0) * size;
      if (!sources[i].max_epochs || after[i] <= limit) continue;
      // The source was used up before, and is not read any more.
      if (after[i] == before[i]) continue;
      const int64_t excess =
          step - 1 + step_of_excess(stream, options, i, consumed, steps, limit);
      fail_excess(sources[i], plan[i].epochs, excess, options);
    }
    consumed += steps * options.global_size;
    step += steps;
  }
  const auto total = static_cast<double>(all_steps * options.global_size);
  for (size_t i = 0; i < plan.size(); ++i) {
    plan[i].share = planned[i] / total;
  }
  return plan;
}

}  // namespace longhaul::data
