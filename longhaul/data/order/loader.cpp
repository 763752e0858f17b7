#include "longhaul/data/order/loader.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
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
  // Where the system gives no thread, the call is deferred and next() prepares the batch
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
    // Without a running read an earlier call has failed, so that the step is read again.
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
