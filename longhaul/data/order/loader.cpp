#include "longhaul/data/order/loader.h"

#include <xxhash.h>

#include <array>
#include <future>
#include <map>
#include <optional>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/random.h"
#include "longhaul/data/order/mixture.h"
#include "longhaul/data/order/permutation.h"

namespace longhaul::data {
namespace {

/// A source of a phase: the same data named twice is two sources.
using SourceName = std::pair<std::string, int>;

std::vector<SourceName> source_names(const Phase& phase) {
  std::map<std::string, int> seen;
  std::vector<SourceName> names;
  for (const PhaseSource& source : phase.sources) {
    names.emplace_back(source.fingerprint, seen[source.fingerprint]++);
  }
  return names;
}

/// How far a source was read, in sequences of the order that it was read in.
struct Progress {
  int64_t seq_len = 0;
  int64_t num_sequences = 1;
  uint64_t seed = 0;
  bool shuffle = false;
  int64_t ordinal = 0;

  /// In another order it goes on with the next whole pass.
  void change_order(const Phase& phase, int64_t sequences) {
    const bool same = seq_len == phase.seq_len && num_sequences == sequences &&
                      seed == phase.seed && shuffle == phase.shuffle;
    if (!same) {
      ordinal = (ordinal + num_sequences - 1) / num_sequences * sequences;
    }
    seq_len = phase.seq_len;
    num_sequences = sequences;
    seed = phase.seed;
    shuffle = phase.shuffle;
  }
};

Mixture mixture_of(const Phase& phase) {
  std::vector<double> weights;
  for (const PhaseSource& source : phase.sources) weights.push_back(source.weight);
  return Mixture(weights);
}

/// Where each source of the last phase stood when that phase began.
std::vector<int64_t> starting_ordinals(const std::vector<Phase>& phases) {
  std::map<SourceName, Progress> progress;
  for (size_t p = 0; p < phases.size(); ++p) {
    const Phase& phase = phases[p];
    const std::vector<SourceName> names = source_names(phase);
    const bool last = p + 1 == phases.size();
    const std::vector<int64_t> counts =
        mixture_of(phase).counts(phase.stream_position(phase.consumed));
    std::vector<int64_t> ordinals;
    for (size_t i = 0; i < names.size(); ++i) {
      Progress& source = progress[names[i]];
      source.change_order(phase, phase.sources[i].num_sequences);
      ordinals.push_back(source.ordinal);
      source.ordinal += counts[i];
    }
    if (last) return ordinals;
  }
  return {};
}

int64_t sequence_hash(const TokenBatch& batch, int64_t row, int64_t sequence) {
  const auto length = static_cast<size_t>(batch.seq_len);
  const size_t begin = static_cast<size_t>(row) * length;
  const uint64_t tokens =
      XXH3_64bits_withSeed(batch.tokens.data() + begin, length * sizeof(int32_t),
                           static_cast<uint64_t>(sequence));
  return static_cast<int64_t>(XXH3_64bits_withSeed(batch.targets.data() + begin,
                                                   length * sizeof(int32_t), tokens));
}

Phase make_phase(const std::vector<WeightedSource>& sources,
                 const LoaderOptions& options) {
  LH_CHECK(!sources.empty(), "data", "a loader without sources");
  Phase phase;
  phase.seq_len = sources.front().source->seq_len();
  phase.shuffle = options.shuffle;
  phase.seed = options.seed;
  for (const WeightedSource& weighted : sources) {
    const TokenSource& source = *weighted.source;
    if (source.seq_len() != phase.seq_len) {
      throw ConfigError("data",
                        fmt::format("{}: sequences of {} tokens beside others of "
                                    "{}; all sources of a run have one length",
                                    source.describe(), source.seq_len(), phase.seq_len));
    }
    if (source.num_sequences() < 1) {
      throw ConfigError("data", fmt::format("{}: not one sequence of {} tokens; choose a "
                                            "smaller data.seq_len or more text",
                                            source.describe(), source.seq_len()));
    }
    phase.sources.push_back(
        {source.fingerprint(), weighted.weight, source.num_sequences()});
  }
  return phase;
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

  /// The sequence at a place of this phase's stream, into a row.
  void read(int64_t stream_position, TokenBatch& batch, int64_t row);
  /// A whole step that starts after `consumed` sequences of this phase.
  void prepare(int64_t consumed, StepBatch& step);
  void start_ahead() {
    const int64_t consumed = cursor.phases.back().consumed;
    ahead = std::async(std::launch::async,
                       [this, consumed] { prepare(consumed, steps[1 - current]); });
  }

  std::vector<WeightedSource> sources;
  LoaderOptions options;
  Cursor cursor;
  bool new_phase = false;
  Phase phase;  // the last one; `consumed` of this copy is not kept up
  Mixture mixture;
  std::vector<int64_t> first_ordinals;
  int64_t earlier_sequences = 0;  // of the phases before
  std::vector<uint64_t> order_keys;
  struct Order {
    int64_t epoch = -1;
    std::optional<Permutation> permutation;
  };
  std::vector<Order> orders;  // of each source's latest epoch; only prepare() uses it
  std::array<StepBatch, 2> steps;
  size_t current = 0;
  std::future<void> ahead;
};

Loader::State::State(std::vector<WeightedSource> weighted, const LoaderOptions& given,
                     Cursor start)
    : sources(std::move(weighted)),
      options(given),
      cursor(std::move(start)),
      phase(make_phase(sources, given)),
      mixture(mixture_of(phase)),
      orders(sources.size()) {
  check_sizes(options);
  const bool resumed = !cursor.phases.empty();
  if (!resumed || !cursor.phases.back().same_stream(phase)) {
    if (resumed && cursor.phases.back().consumed == 0) cursor.phases.pop_back();
    new_phase = resumed;
    cursor.phases.push_back(phase);
  }
  phase = cursor.phases.back();
  first_ordinals = starting_ordinals(cursor.phases);
  earlier_sequences = cursor.sequences() - phase.consumed;
  for (const auto& [fingerprint, occurrence] : source_names(phase)) {
    order_keys.push_back(
        random_key(phase.seed, fmt::format("order {} {}", occurrence, fingerprint)));
  }
}

void Loader::State::read(int64_t stream_position, TokenBatch& batch, int64_t row) {
  const Mixture::Pick pick = mixture.pick(stream_position);
  const auto s = static_cast<size_t>(pick.source);
  const int64_t size = phase.sources[s].num_sequences;
  const int64_t ordinal = first_ordinals[s] + pick.ordinal;
  const int64_t epoch = ordinal / size;
  int64_t index = ordinal % size;
  if (phase.shuffle) {
    Order& order = orders[s];
    if (order.epoch != epoch) {
      const uint64_t key = random_key(order_keys[s], fmt::format("epoch {}", epoch));
      order.permutation.emplace(size, key);
      order.epoch = epoch;
    }
    index = (*order.permutation)(index);
  }
  sources[s].source->read(index, batch, row);
}

void Loader::State::prepare(int64_t consumed, StepBatch& step) {
  const int64_t rows = options.micro_size;
  const int64_t count = options.global_size / (rows * options.data_size);
  step.first_sequence = earlier_sequences + consumed;
  step.micro_batches.resize(static_cast<size_t>(count));
  step.num_targets = 0;
  uint64_t content = 0;
  for (int64_t m = 0; m < count; ++m) {
    TokenBatch& batch = step.micro_batches[static_cast<size_t>(m)];
    batch.resize(rows, phase.seq_len);
    for (int64_t j = 0; j < rows; ++j) {
      const int64_t in_step = (m * options.data_size + options.data_rank) * rows + j;
      read(phase.stream_position(consumed + in_step), batch, j);
      content +=
          static_cast<uint64_t>(sequence_hash(batch, j, step.first_sequence + in_step));
    }
    step.num_targets += batch.num_targets();
  }
  step.content_hash = static_cast<int64_t>(content);
}

Loader::Loader(std::vector<WeightedSource> sources, const LoaderOptions& options,
               Cursor start)
    : state_(std::make_unique<State>(std::move(sources), options, std::move(start))) {
  if (options.prefetch) state_->start_ahead();
}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;

StepBatch& Loader::next() {
  State& state = *state_;
  if (state.options.prefetch) {
    // Without a reader under way an earlier call failed: read again.
    if (!state.ahead.valid()) state.start_ahead();
    state.ahead.get();
  } else {
    state.prepare(state.cursor.phases.back().consumed, state.steps[1 - state.current]);
  }
  state.current = 1 - state.current;
  state.cursor.phases.back().consumed += state.options.global_size;
  if (state.options.prefetch) state.start_ahead();
  return state.steps[state.current];
}

const Cursor& Loader::cursor() const { return state_->cursor; }
bool Loader::began_new_phase() const { return state_->new_phase; }
int64_t Loader::seq_len() const { return state_->phase.seq_len; }
int64_t Loader::micro_batches() const {
  const LoaderOptions& options = state_->options;
  return options.global_size / (options.micro_size * options.data_size);
}

int64_t Loader::sequences_per_epoch() const {
  int64_t sum = 0;
  for (const PhaseSource& source : state_->phase.sources) sum += source.num_sequences;
  return sum;
}

double Loader::epoch() const {
  return static_cast<double>(state_->cursor.phases.back().consumed) /
         static_cast<double>(sequences_per_epoch());
}

std::vector<double> Loader::source_epochs() const {
  const Phase& phase = state_->cursor.phases.back();
  const std::vector<int64_t> counts =
      state_->mixture.counts(phase.stream_position(phase.consumed));
  std::vector<double> epochs;
  for (size_t i = 0; i < counts.size(); ++i) {
    epochs.push_back(static_cast<double>(state_->first_ordinals[i] + counts[i]) /
                     static_cast<double>(phase.sources[i].num_sequences));
  }
  return epochs;
}

}  // namespace longhaul::data
