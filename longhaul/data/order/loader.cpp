#include "longhaul/data/order/loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

/// The most sequences of a run. Below this limit positions in a stream and their products
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
  const auto within = [&](int64_t step) {
    return stream.had(consumed + step * options.global_size)[source] <= limit;
  };
  return *std::ranges::partition_point(std::views::iota(int64_t{1}, steps), within);
}

[[noreturn]] void fail_excess(const WeightedSource& source, double epochs, int64_t step,
                              const LoaderOptions& options) {
  fail_config("data",
              "{}: max_epochs = {} is used up at step {} of {}; with these weights the "
              "source would be read {:.3f} times. Lower its weight, take the source out "
              "from step {} on with data.changes, shorten the run, or raise max_epochs",
              source.name, *source.max_epochs, step, options.last_step, epochs, step);
}

/// Returns the phase that a step belongs to, with the weights of that step. Throws
/// ConfigError when the sources do not fit together.
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

/// Returns the cursor for a step. Adds `phase` if the cursor's last phase is another
/// stream.
Cursor enter_step(Cursor cursor, const Phase& phase) {
  std::vector<Phase>& phases = cursor.phases;
  if (!phases.empty() && phases.back().same_stream(phase)) return cursor;
  if (!phases.empty() && phases.back().consumed == 0) phases.pop_back();
  // After an empty phase is removed, the phase before it may be the same stream.
  if (!phases.empty() && phases.back().same_stream(phase)) return cursor;
  cursor.begin_phase(phase);
  return cursor;
}

/// Returns how often each source is read until the last step. The last phase of `cursor`
/// is the phase of options.first_step, and `in_force` is the stream of that phase. Throws
/// ConfigError, which names the step, when a source exceeds its max_epochs.
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
  for (size_t i = 0; i < plan.size(); ++i) plan[i].share = planned[i] / total;
  return plan;
}

void check_sizes(const LoaderOptions& options) {
  LH_CHECK(options.data_rank >= 0 && options.data_rank < options.data_size, "data",
           "data rank {} of {}", options.data_rank, options.data_size);
  const int64_t pass = options.micro_size * options.data_size;
  if (options.micro_size < 1 || options.global_size < 1 ||
      options.global_size % pass != 0) {
    fail_config("data",
                "batch.global_size {} is not a multiple of batch.micro_size {} x {} "
                "data-parallel ranks; the next multiple is {}",
                options.global_size, options.micro_size, options.data_size,
                pass < 1 ? 1 : (options.global_size + pass - 1) / pass * pass);
  }
}

bool changes_weights(const LoaderOptions& options, int64_t step) {
  return std::ranges::any_of(options.changes, [step](const WeightChange& change) {
    return change.step == step;
  });
}

}  // namespace

uint64_t chain_hash(uint64_t previous, int64_t content) {
  const std::array<uint64_t, 2> words = {previous, static_cast<uint64_t>(content)};
  return XXH3_64bits(words.data(), sizeof(words));
}

int64_t sequence_hash(const TokenBatch& batch, int64_t row, int64_t sequence) {
  auto hash = static_cast<uint64_t>(sequence);
  const auto add = [&](const std::vector<int32_t>& values) {
    const size_t each = values.size() / static_cast<size_t>(batch.num_sequences);
    hash = XXH3_64bits_withSeed(values.data() + static_cast<size_t>(row) * each,
                                each * sizeof(int32_t), hash);
  };
  add(batch.tokens);
  for (const std::vector<int32_t>& targets : batch.targets) add(targets);
  if (!batch.segments.empty()) add(batch.segments);
  if (!batch.document_end.empty()) add(batch.document_end);
  return static_cast<int64_t>(hash);
}

Cursor cursor_before(const std::vector<WeightedSource>& sources,
                     const LoaderOptions& options, Cursor start, int64_t step) {
  LoaderOptions until = options;
  until.last_step = step - 1;
  for (int64_t at = options.first_step; at < step;) {
    start = enter_step(std::move(start), make_phase(sources, options, at));
    const int64_t steps = last_step_of_phase(until, at) - at + 1;
    start.phases.back().consumed += steps * options.global_size;
    at += steps;
  }
  return start;
}

Loader::Loader(std::vector<WeightedSource> sources, const LoaderOptions& options,
               Cursor start)
    : sources_(std::move(sources)) {
  restart(options, std::move(start));
}

Loader::~Loader() {
  if (ahead_.valid()) ahead_.wait();
}

void Loader::restart(const LoaderOptions& options, Cursor start) {
  if (ahead_.valid()) ahead_.wait();
  ahead_ = {};
  options_ = options;
  next_step_ = options.first_step;
  check_sizes(options_);
  const Phase phase = make_phase(sources_, options_, next_step_);
  changes_.clear();
  if (!start.phases.empty()) changes_ = data::phase_changes(start.phases.back(), phase);
  Prepared& first = steps_[current_];
  first.cursor = enter_step(std::move(start), phase);
  first.stream = std::make_shared<PhaseStream>(first.cursor.phases);
  plan_ = plan_sources(sources_, options_, first.cursor, first.stream);
  if (options_.prefetch) start_ahead();
}

void Loader::start_ahead() {
  // If the system gives no thread, the call is deferred and next() prepares the batch
  // itself.
  ahead_ = std::async(std::launch::async | std::launch::deferred, [this] { prepare(); });
}

void Loader::fetch_ahead(const std::vector<int64_t>& last) const {
  // The number of sequences that this rank reads after the step which it has just read.
  const int64_t left = (options_.last_step - next_step_) * options_.global_size;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (last[i] < 0) continue;
    const TokenSource& source = *sources_[i].source;
    const int64_t next = source.next_piece(last[i]);
    if (options_.last_step > 0 && next - last[i] > left) continue;
    source.fetch_ahead(next % source.num_sequences());
  }
}

bool Loader::ready(std::chrono::milliseconds limit) const {
  return !ahead_.valid() || ahead_.wait_for(limit) != std::future_status::timeout;
}

void Loader::prepare() {
  const Prepared& from = steps_[current_];
  Prepared& to = steps_[1 - current_];
  to.cursor = from.cursor;
  to.stream = from.stream;
  if (changes_weights(options_, next_step_)) {
    const Phase phase = make_phase(sources_, options_, next_step_);
    if (!from.cursor.phases.back().same_stream(phase)) {
      to.cursor = enter_step(from.cursor, phase);
      to.stream = std::make_shared<PhaseStream>(to.cursor.phases);
    }
  }
  const int64_t consumed = to.cursor.phases.back().consumed;
  const int64_t rows = options_.micro_size;
  StepBatch& batch = to.batch;
  batch.first_sequence = to.cursor.sequences();
  batch.micro_batches.resize(static_cast<size_t>(micro_batches()));
  batch.num_targets.clear();
  batch.num_real = 0;
  uint64_t content = 0;
  std::vector<int64_t> last(sources_.size(), -1);
  for (int64_t m = 0; m < micro_batches(); ++m) {
    TokenBatch& micro = batch.micro_batches[static_cast<size_t>(m)];
    sources_.front().source->shape(micro, rows);
    for (int64_t j = 0; j < rows; ++j) {
      const int64_t in_step = (m * options_.data_size + options_.data_rank) * rows + j;
      const PhaseStream::Place place = to.stream->place(consumed + in_step);
      sources_[place.source].source->read(place.index, micro, j);
      last[place.source] = place.index;
      micro.sequences.push_back(batch.first_sequence + in_step);
      for (int64_t i = 0; i < micro.seq_len; ++i) {
        micro.index.push_back(static_cast<int32_t>(i));
      }
      content +=
          static_cast<uint64_t>(sequence_hash(micro, j, batch.first_sequence + in_step));
    }
    batch.num_real += micro.num_real();
    batch.num_targets.resize(micro.targets.size(), 0);
    for (size_t term = 0; term < micro.targets.size(); ++term) {
      batch.num_targets[term] += micro.num_targets(term);
    }
  }
  if (!options_.shuffle) fetch_ahead(last);
  batch.content_hash = static_cast<int64_t>(content);
  to.cursor.phases.back().consumed += options_.global_size;
}

StepBatch& Loader::next() {
  if (options_.prefetch) {
    // If no read is running, an earlier call of next() has failed. The step is then read
    // again.
    if (!ahead_.valid()) start_ahead();
    ahead_.get();
  } else {
    prepare();
  }
  current_ = 1 - current_;
  ++next_step_;
  if (options_.prefetch) start_ahead();
  return steps_[current_].batch;
}

double Loader::epoch() const {
  const int64_t per_epoch = sequences_per_epoch();
  return cursor().sequences_of(per_epoch) / static_cast<double>(per_epoch);
}

}  // namespace longhaul::data
