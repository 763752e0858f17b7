#include "longhaul/data/order/loader.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <future>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/data/order/loader_plan.h"

namespace longhaul::data {
namespace {

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

void check_sizes(const LoaderOptions& options) {
  LH_CHECK(options.data_rank >= 0 && options.data_rank < options.data_size, "data",
           "data rank {} of {}", options.data_rank, options.data_size);
  const int64_t pass = options.micro_size * options.data_size;
  if (options.micro_size < 1 || options.global_size < 1 ||
      options.global_size % pass != 0) {
    throw ConfigError(
        "data",
        fmt::format("batch.global_size {} is not a multiple of batch.micro_size {} x {} "
                    "data-parallel ranks; the nearest that is: {}",
                    options.global_size, options.micro_size, options.data_size,
                    pass < 1 ? 1 : (options.global_size + pass - 1) / pass * pass));
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

struct Loader::State {
  State(std::vector<WeightedSource> weighted, const LoaderOptions& given, Cursor start);
  ~State() {
    if (ahead.valid()) ahead.wait();
  }

  /// A step, its phase and the run's position after it.
  struct Prepared {
    StepBatch batch;
    std::shared_ptr<PhaseStream> stream;
    Cursor cursor;
  };
  /// Reads the step after `from` into `to`.
  void prepare(const Prepared& from, int64_t step, Prepared& to);
  void start_ahead() {
    // Deferred where the system gives no thread: the step then waits for its batch.
    ahead = std::async(std::launch::async | std::launch::deferred, [this] {
      prepare(steps[current], next_step, steps[1 - current]);
    });
  }

  std::vector<WeightedSource> sources;
  LoaderOptions options;
  int64_t sequences_per_epoch = 0;
  std::vector<PhaseChange> changes;
  std::vector<SourcePlan> plan;
  int64_t next_step = 1;
  std::array<Prepared, 2> steps;  // the one handed out, and the one that comes
  size_t current = 0;
  std::future<void> ahead;
};

Loader::State::State(std::vector<WeightedSource> weighted, const LoaderOptions& given,
                     Cursor start)
    : sources(std::move(weighted)), options(given), next_step(given.first_step) {
  check_sizes(options);
  const Phase phase = make_phase(sources, options, options.first_step);
  if (!start.phases.empty()) changes = data::phase_changes(start.phases.back(), phase);
  for (const PhaseSource& source : phase.sources) {
    sequences_per_epoch += source.num_sequences;
  }
  steps[current].cursor = enter_step(std::move(start), phase);
  steps[current].stream = std::make_shared<PhaseStream>(steps[current].cursor.phases);
  plan = plan_sources(sources, options, steps[current].cursor, steps[current].stream);
}

void Loader::State::prepare(const Prepared& from, int64_t step, Prepared& to) {
  to.cursor = from.cursor;
  to.stream = from.stream;
  if (changes_weights(options, step)) {
    const Phase phase = make_phase(sources, options, step);
    if (!from.cursor.phases.back().same_stream(phase)) {
      to.cursor = enter_step(from.cursor, phase);
      to.stream = std::make_shared<PhaseStream>(to.cursor.phases);
    }
  }
  const int64_t consumed = to.cursor.phases.back().consumed;
  const int64_t rows = options.micro_size;
  const int64_t count = options.global_size / (rows * options.data_size);
  StepBatch& batch = to.batch;
  batch.first_sequence = to.cursor.sequences();
  batch.micro_batches.resize(static_cast<size_t>(count));
  batch.num_targets.clear();
  uint64_t content = 0;
  for (int64_t m = 0; m < count; ++m) {
    TokenBatch& micro = batch.micro_batches[static_cast<size_t>(m)];
    sources.front().source->shape(micro, rows);
    for (int64_t j = 0; j < rows; ++j) {
      const int64_t in_step = (m * options.data_size + options.data_rank) * rows + j;
      const PhaseStream::Place place = to.stream->place(consumed + in_step);
      sources[place.source].source->read(place.index, micro, j);
      micro.sequences.push_back(batch.first_sequence + in_step);
      for (int64_t i = 0; i < micro.seq_len; ++i) {
        micro.index.push_back(static_cast<int32_t>(i));
      }
      content +=
          static_cast<uint64_t>(sequence_hash(micro, j, batch.first_sequence + in_step));
    }
    batch.num_targets.resize(micro.targets.size(), 0);
    for (size_t term = 0; term < micro.targets.size(); ++term) {
      batch.num_targets[term] += micro.num_targets(term);
    }
  }
  batch.content_hash = static_cast<int64_t>(content);
  to.cursor.phases.back().consumed += options.global_size;
}

Loader::Loader(std::vector<WeightedSource> sources, const LoaderOptions& options,
               Cursor start)
    : state_(std::make_unique<State>(std::move(sources), options, std::move(start))) {
  if (options.prefetch) state_->start_ahead();
}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

StepBatch& Loader::next() {
  State& state = *state_;
  if (state.options.prefetch) {
    // Without a reader under way an earlier call failed: read again.
    if (!state.ahead.valid()) state.start_ahead();
    state.ahead.get();
  } else {
    state.prepare(state.steps[state.current], state.next_step,
                  state.steps[1 - state.current]);
  }
  state.current = 1 - state.current;
  ++state.next_step;
  if (state.options.prefetch) state.start_ahead();
  return state.steps[state.current].batch;
}

const Cursor& Loader::cursor() const { return state_->steps[state_->current].cursor; }
const std::vector<PhaseChange>& Loader::phase_changes() const { return state_->changes; }
int64_t Loader::seq_len() const { return cursor().phases.back().seq_len; }
int64_t Loader::micro_batches() const {
  const LoaderOptions& options = state_->options;
  return options.global_size / (options.micro_size * options.data_size);
}

int64_t Loader::sequences_per_epoch() const { return state_->sequences_per_epoch; }

double Loader::epoch() const {
  int64_t consumed = 0;
  for (const Phase& phase : cursor().phases) {
    if (phase.seq_len == seq_len()) consumed += phase.consumed;
  }
  return static_cast<double>(consumed) / static_cast<double>(sequences_per_epoch());
}

std::vector<double> Loader::source_epochs() const {
  const Phase& phase = cursor().phases.back();
  const PhaseStream& stream = *state_->steps[state_->current].stream;
  const std::vector<int64_t> ordinals = stream.ordinals(phase.consumed);
  std::vector<double> epochs;
  for (size_t i = 0; i < ordinals.size(); ++i) {
    epochs.push_back(static_cast<double>(ordinals[i]) /
                     static_cast<double>(phase.sources[i].num_sequences));
  }
  return epochs;
}

std::vector<SourceCount> Loader::source_counts() const {
  return state_->steps[state_->current].stream->counts(cursor().phases.back().consumed);
}

const std::vector<SourcePlan>& Loader::plan() const { return state_->plan; }

}  // namespace longhaul::data
