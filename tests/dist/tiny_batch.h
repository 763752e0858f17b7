#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "longhaul/families/description/description.h"
#include "longhaul/nn/forward_context.h"

namespace longhaul::testing {

/// Returns a batch of `rows` sequences for a model of this description. The sequences
/// have `length` positions, of which `seq` are here. If the model is not causal,
/// TokenCounts says how many tokens are masked out.
inline nn::Batch tiny_batch(const ModelDescription& model, int64_t rows, int64_t seq,
                            int64_t length) {
  const int64_t tokens = rows * seq;
  nn::Batch batch;
  batch.rows = rows;
  batch.seq = seq;
  batch.tokens = at::zeros({tokens}, at::kInt);
  batch.positions = at::arange(seq, at::kInt).repeat({rows});
  for (const LossTerm& term : model.losses) {
    if (term.over == LossTerm::Over::Positions) continue;
    batch.targets.push_back(at::zeros({term.of_sequences ? rows : tokens}, at::kLong));
  }
  if (model.drops) {
    batch.sequences = at::arange(rows);
    batch.sequence_of = batch.sequences.repeat_interleave(seq);
    batch.index = batch.positions;
  }
  if (model.is_causal()) return batch;
  batch.segments = at::zeros({tokens}, at::kInt);
  batch.document_end = at::full({rows, seq}, length, at::TensorOptions().dtype(at::kInt));
  const int64_t masked = TokenCounts{tokens, tokens, rows}.rows(KeptRows::Masked);
  batch.targets[0].narrow(0, masked, tokens - masked).fill_(-1);
  return batch;
}

}  // namespace longhaul::testing
