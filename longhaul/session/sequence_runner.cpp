#include "longhaul/session/sequence_runner.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/session/inference.h"
#include "longhaul/tensor/device_limits.h"

// Shapes: B sequences, V vocabulary or this rank's part of it.

namespace longhaul::session {
namespace {

/// Returns the rank that chooses the tokens.
int chooser_of(const Session& session) {
  const layout::MeshShape& shape = session.mesh().shape();
  return layout::rank_at(shape, {.pp = shape.pp - 1});
}

/// Returns a length of at least `length`. Where each shape is compiled, lengths are
/// multiples of this number, so that few differ.
int64_t settled_length(const Session& session, int64_t length) {
  constexpr int64_t kStep = 128;
  if (tensor::limits_of(session.device()).any_shapes) return length;
  return (length + kStep - 1) / kStep * kStep;
}

/// Chooses a token by logits [V], which are in fp32 on the host.
ChosenToken chosen(const at::Tensor& logits, const Continuation& sequence, int64_t step) {
  ChosenToken token{infer::sample(logits, sequence.sampling, step), 0.0, {}};
  if (sequence.top < 0) return token;
  const at::Tensor log_p = at::log_softmax(logits, 0);
  token.log_prob = log_p[token.id].item<float>();
  const auto [values, ids] = at::topk(log_p, std::min(sequence.top, log_p.numel()));
  for (int64_t i = 0; i < values.numel(); ++i) {
    token.top.emplace_back(ids[i].item<int64_t>(), values[i].item<float>());
  }
  return token;
}

}  // namespace

void SequenceRunner::Head::head(const models::Model& model, const nn::Tensors& hidden,
                                const nn::ForwardContext& context) {
  scores.head(model, hidden, context);
  const nn::Batch& batch = context.batch;
  const at::Tensor last =
      hidden[0].view({batch.rows, batch.seq, -1}).select(1, batch.seq - 1);
  logits = model.logits(last.contiguous());
}

SequenceRunner::SequenceRunner(const Session& session)
    : session_(session),
      head_(session),
      runner_(session.chunks(), session.replicas(), [&] {
        StageOptions options = stage_options(session);
        options.observer = &head_;
        options.masks_documents = true;  // a row begins behind its padding
        return options;
      }()) {}

std::vector<ChosenToken> SequenceRunner::begin(std::vector<Continuation> sequences) {
  rows_.clear();
  caches_.clear();
  length_ = step_ = 0;
  int64_t longest = 0, most = 0, given = 0;
  for (Continuation& sequence : sequences) {
    LH_CHECK(!sequence.prompt.empty(), "generate", "the prompt has no tokens");
    longest = std::max<int64_t>(longest, std::ssize(sequence.prompt));
    most = std::max(most, sequence.sampling.max_new_tokens);
    if (sequence.scores) given += std::ssize(sequence.prompt) - 1;
    rows_.push_back({std::move(sequence)});
  }
  longest = settled_length(session_, longest);
  if (most > 1) {
    const auto kind =
        at::TensorOptions(session_.device())
            .dtype(tensor::to_scalar_type(session_.machine().policy.compute));
    for (const Chunk& chunk : session_.chunks()) {
      caches_.push_back(chunk.model->make_cache(
          std::ssize(rows_), settled_length(session_, longest + most - 1), kind));
    }
  }
  data::TokenBatch batch;
  batch.resize(std::ssize(rows_), longest);
  std::ranges::fill(batch.tokens, 0);
  std::ranges::fill(batch.positions, 0);
  std::ranges::fill(batch.targets[0], data::kIgnore);
  for (size_t r = 0; r < rows_.size(); ++r) {
    Row& row = rows_[r];
    const std::vector<int64_t>& prompt = row.sequence.prompt;
    row.first = longest - std::ssize(prompt);
    const size_t begin = r * static_cast<size_t>(longest);
    std::fill_n(batch.document_start.begin() + static_cast<int64_t>(begin), longest,
                static_cast<int32_t>(row.first));
    for (size_t i = 0; i < prompt.size(); ++i) {
      const size_t at = begin + static_cast<size_t>(row.first) + i;
      batch.tokens[at] = static_cast<int32_t>(prompt[i]);
      batch.positions[at] = static_cast<int32_t>(i);
      if (row.sequence.scores && i + 1 < prompt.size()) {
        batch.targets[0][at] = static_cast<int32_t>(prompt[i + 1]);
      }
    }
  }
  if (given == 0) batch.targets.clear();
  std::vector<ChosenToken> tokens = run(std::move(batch));
  spread_scores(given);
  return tokens;
}

std::vector<ChosenToken> SequenceRunner::next() {
  data::TokenBatch batch;
  batch.resize(std::ssize(rows_), 1);
  batch.targets.clear();
  for (size_t r = 0; r < rows_.size(); ++r) {
    const Row& row = rows_[r];
    batch.tokens[r] = static_cast<int32_t>(row.last);
    batch.positions[r] = static_cast<int32_t>(length_ - row.first);
    batch.document_start[r] = static_cast<int32_t>(row.first);
  }
  return run(std::move(batch));
}

void SequenceRunner::keep(const std::vector<size_t>& numbers) {
  std::vector<Row> rows;
  std::vector<int32_t> indices;
  for (const size_t number : numbers) {
    rows.push_back(std::move(rows_.at(number)));
    indices.push_back(static_cast<int32_t>(number));
  }
  rows_ = std::move(rows);
  const at::NoGradGuard no_grad;
  const at::Tensor index = at::tensor(indices, at::kInt).to(session_.device());
  for (nn::KvCache& cache : caches_) {
    for (ops::KeptPositions& layer : cache.layers) {
      layer = ops::each_of(
          layer, [&](const at::Tensor& x) { return at::index_select(x, 0, index); });
    }
  }
}

/// Runs a batch of the next tokens of all rows, and chooses the token behind.
std::vector<ChosenToken> SequenceRunner::run(data::TokenBatch batch) {
  const at::NoGradGuard no_grad;
  runner_.set_caches(caches_.empty() ? nullptr : &caches_);
  const int64_t count = batch.seq_len;
  std::vector<data::TokenBatch> batches;
  batches.push_back(std::move(batch));
  run_forward(session_, runner_, batches);
  for (nn::KvCache& cache : caches_) cache.length += count;
  length_ += count;
  return choose();
}

/// Takes the scores of the last pass, which the last stage has, to all ranks.
void SequenceRunner::spread_scores(int64_t count) {
  scores_ = head_.scores.take();
  if (count == 0) return;
  static_assert(sizeof(TokenScore) == 2 * sizeof(int64_t));
  scores_.resize(static_cast<size_t>(count));
  session_.world()
      .broadcast({scores_.data(), 2 * count, format::DType::I64}, chooser_of(session_))
      ->wait();
}

std::vector<ChosenToken> SequenceRunner::choose() {
  int64_t most_top = 0;
  for (const Row& row : rows_) most_top = std::max(most_top, row.sequence.top);
  most_top = std::min(most_top, session_.model().vocab_size);
  // A row has the id, its log-probability, and then pairs of an id and its
  // log-probability for the likeliest ids.
  const int64_t each = 2 + 2 * most_top;
  std::vector<double> numbers(rows_.size() * static_cast<size_t>(each), 0.0);
  const at::Tensor logits =
      head_.logits.defined() ? whole_logits(session_, head_.logits) : at::Tensor();
  const int chooser = chooser_of(session_);
  if (session_.world().rank() == chooser) {
    for (size_t r = 0; r < rows_.size(); ++r) {
      const Continuation& sequence = rows_[r].sequence;
      if (sequence.sampling.max_new_tokens == 0) continue;
      const ChosenToken token = chosen(logits[static_cast<int64_t>(r)], sequence, step_);
      double* to = numbers.data() + r * static_cast<size_t>(each);
      *to++ = static_cast<double>(token.id);
      *to++ = token.log_prob;
      for (const auto& [id, log_prob] : token.top) {
        *to++ = static_cast<double>(id);
        *to++ = log_prob;
      }
    }
  }
  session_.world()
      .broadcast({numbers.data(), std::ssize(numbers), format::DType::F64}, chooser)
      ->wait();
  ++step_;
  std::vector<ChosenToken> tokens;
  for (size_t r = 0; r < rows_.size(); ++r) {
    const double* from = numbers.data() + r * static_cast<size_t>(each);
    ChosenToken token{static_cast<int64_t>(from[0]), from[1], {}};
    const int64_t top = std::min(rows_[r].sequence.top, most_top);
    for (int64_t i = 0; i < top; ++i) {
      from += 2;
      token.top.emplace_back(static_cast<int64_t>(from[0]), from[1]);
    }
    rows_[r].last = token.id;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace longhaul::session
