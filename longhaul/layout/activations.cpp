#include "longhaul/layout/activations.h"

#include <algorithm>
#include <map>

#include "longhaul/base/error.h"
#include "longhaul/layout/sent_bytes.h"

namespace longhaul::layout {
namespace {

constexpr int64_t kTargetBytes = 8;
/// Bytes of the token and the position of one place of a micro batch.
constexpr int64_t kTokenBytes = 8;
/// Bytes of the number of a token's sequence, which dropout needs.
constexpr int64_t kNumberBytes = 8;
/// The bytes of two indices that are kept for each row sent to an expert: its index on
/// arrival at the expert's rank, and its index after the sort by expert.
constexpr int64_t kPlacesBytes = 2 * 8;

const StageSpec& stage_at(const LayoutDescription& layout, const MeshIndex& at,
                          int chunk) {
  return layout.stage(rank_at(layout.shape, at), chunk);
}

ForwardForm::Recompute recompute_of(RecomputeKind kind) {
  switch (kind) {
    case RecomputeKind::None:
      return ForwardForm::Recompute::None;
    case RecomputeKind::Selective:
      return ForwardForm::Recompute::Selective;
    case RecomputeKind::Full:
      return ForwardForm::Recompute::Full;
  }
  LH_ASSERT(false, "a kind of recomputation that is not known: {}",
            static_cast<int>(kind));
}

/// Returns the bytes of the row indices that a unit keeps, with which rows return from
/// the ranks of their experts (parallel/expert/).
int64_t way_bytes(const ForwardForm& form, const TokenCounts& tokens,
                  const UnitDescription& unit, int64_t ep) {
  if (ep == 1 || form.recompute == ForwardForm::Recompute::Full) return 0;
  return tokens.rows(KeptRows::Routed) * unit.forward.routed * kPlacesBytes;
}

/// Estimates the temporary memory of a block's backward: the gradients of its inner
/// features and of its result, and once more the features that are computed again. If
/// the block has experts, the gradient of their rows is there as well. With ep the block
/// holds rows twice while it exchanges or sorts them, in the forward and in the backward.
/// While it does so, the gradients of inner features do not exist.
int64_t block_work(const Passes& passes, const UnitDescription& block,
                   const LayoutDescription& layout, int64_t tp_index) {
  const ShardPlan& plan = layout.tensor;
  const format::TpRank rank = plan.rank(tp_index);
  const int64_t c = passes.form.compute_bytes;
  const TokenCounts& tokens = passes.tokens;
  int64_t inner = 0;
  for (const KeptTensor& tensor : block.forward.put_off) {
    if (!tensor.split || tensor.outside) continue;
    const int64_t width = format::part_of(tensor.split, tensor.width, rank).size();
    inner = std::max(inner, tokens.rows(tensor.rows) * tensor.each * width);
  }
  const ForwardForm form = passes.form_of(block);
  const bool selective = form.recompute == ForwardForm::Recompute::Selective;
  const int64_t again = selective ? inner : 0;
  const int64_t gathered = plan.sequence ? tokens.inside * passes.features : 0;
  const int64_t routed = tokens.rows(KeptRows::Routed) * block.forward.routed;
  const int64_t rows = routed * passes.features;
  int64_t inside = rows + std::max(2 * inner + 2 * again, gathered + inner + again);
  if (layout.ep > 1) {
    const int64_t packed = routed * packed_row_bytes(passes.features, c) / c;
    inside = std::max(inside, 2 * packed + gathered);
  }
  int64_t work = (tokens.outside * passes.features + inside) * c;
  if (form.recompute == ForwardForm::Recompute::Full) {
    ForwardForm plain = form;
    plain.recompute = ForwardForm::Recompute::None;
    work += block.forward.kept(plain, tokens, rank, true).total() +
            way_bytes(plain, tokens, block, layout.ep);
  }
  return work;
}

/// Returns the head's temporary memory: the norm's result, which sequence parallelism
/// gathers, and a chunk of logits.
int64_t head_work(const Passes& passes, bool gathers, int64_t logits) {
  const int64_t row = passes.features * passes.form.compute_bytes;
  return passes.tokens.outside * row + (gathers ? passes.tokens.inside * row : 0) +
         logits;
}

int64_t logits_bytes(const Passes& passes, const UnitDescription& head,
                     const format::TpRank& rank) {
  const int64_t vocabulary = head.forward.logits;
  const int64_t columns = format::even_part(vocabulary, rank.of, rank.index).size();
  const int64_t agreed = rank.of > 1 ? vocabulary / rank.of + 1 : vocabulary;
  return logits_rows(passes.tokens.rows(head.forward.logits_of), agreed,
                     passes.logits_elements) *
         head.forward.logits_copies * columns * passes.form.compute_bytes;
}

KeptBytes minus(const KeptBytes& a, const KeptBytes& b) {
  KeptBytes difference = a;
  for (size_t i = 0; i < kKeptKinds; ++i) {
    const auto kind = static_cast<KeptKind>(i);
    difference[kind] -= b[kind];
  }
  return difference;
}

/// Returns the bytes of the unit's own input, if a deferred weight gradient needs it.
int64_t input_put_off(const Passes& passes, const UnitDescription& unit,
                      const format::TpRank& rank) {
  int64_t bytes = 0;
  for (const KeptTensor& tensor : unit.forward.put_off) {
    if (tensor.is_input) bytes += tensor.bytes(passes.form, passes.tokens, rank);
  }
  return bytes;
}

/// Sets `result.in_flight` to the bytes that the rank keeps at the moment of its actions
/// at which it keeps most.
void walk(const std::vector<PipelineAction>& actions,
          const std::vector<ChunkBytes>& chunks, ActivationBytes& result) {
  using Kind = PipelineAction::Kind;
  KeptBytes live;
  int64_t open = 0;
  for (const PipelineAction& action : actions) {
    const ChunkBytes& bytes = chunks.at(static_cast<size_t>(action.chunk));
    if (action.kind == Kind::Forward) {
      live += bytes.forward;
      ++open;
    } else if (action.kind == Kind::Backward) {
      live = minus(live, bytes.forward);
      live += bytes.backward;
      --open;
    } else if (action.kind == Kind::WeightGradients) {
      live = minus(live, bytes.backward);
    }
    if (live.total() <= result.in_flight.total()) continue;
    result.in_flight = live;
    result.forwards = open;
  }
}

}  // namespace

ForwardForm Passes::form_of(const UnitDescription& unit) const {
  ForwardForm own = form;
  const bool keeps_all = unit.kind != UnitKind::Block || unit.layer >= recompute_end;
  if (own.recompute == ForwardForm::Recompute::Full && keeps_all) {
    own.recompute = ForwardForm::Recompute::None;
  }
  return own;
}

Passes passes_of(const RunConfig& config, const ModelDescription& model,
                 const LayoutDescription& layout, std::string_view device) {
  Passes passes;
  passes.form.fused = config.run.fused;
  passes.form.compute_bytes = config.precision.compute == ComputeType::Fp32 ? 4 : 2;
  if (device != "auto" && device != "cpu") {
    passes.logits_elements = kDeviceLogitsBytes / passes.form.compute_bytes;
    passes.token_bytes = kTokenBytes;
  }
  passes.form.recompute = recompute_of(config.memory.recompute);
  const int64_t tokens = config.batch.micro_size * config.data.seq_len / layout.shape.cp;
  passes.tokens = {tokens, layout.tensor.sequence ? tokens / layout.shape.tp : tokens,
                   config.batch.micro_size};
  passes.features = model.features();
  for (const PassedTensor& tensor : model.passed) passes.passed += tensor.width;
  if (config.memory.recompute == RecomputeKind::Full) {
    passes.recompute_end = config.memory.recompute_layers.value_or(model.num_blocks());
  }
  return passes;
}

ChunkBytes chunk_bytes(const Passes& passes, const ModelDescription& model,
                       const LayoutDescription& layout, const MeshIndex& at, int chunk) {
  const StageSpec& spec = stage_at(layout, at, chunk);
  const format::TpRank rank = layout.tensor.rank(at.tp);
  ChunkBytes bytes;
  std::optional<int64_t> kept_input;  // the input of the first unit
  int64_t waiting_input = 0;          // the part that a deferred weight gradient needs
  for (const UnitDescription& unit : model.units) {
    if (!is_in_stage(unit, spec)) continue;
    const KeptBytes kept = unit.forward.kept(passes.form_of(unit), passes.tokens, rank,
                                             unit.kind == UnitKind::Block);
    if (!kept_input) {
      kept_input = kept[KeptKind::Input];
      waiting_input = input_put_off(passes, unit, rank);
    }
    bytes.forward += kept;
    bytes.forward[KeptKind::FeedForward] +=
        way_bytes(passes.form_of(unit), passes.tokens, unit, layout.ep);
    if (layout.pipeline == PipelineKind::ZeroBubbleH1) {
      bytes.backward += unit.forward.kept_put_off(passes.form, passes.tokens, rank);
    }
  }
  int64_t targets = 0;
  for (const LossTerm& term : model.losses) {
    if (term.over != LossTerm::Over::Targets) continue;
    const TokenCounts& tokens = passes.tokens;
    targets += (term.of_sequences ? tokens.sequences : tokens.inside) * kTargetBytes;
  }
  if (model.drops) targets += passes.tokens.inside * kNumberBytes;
  bytes.forward[KeptKind::Batch] += targets;
  bytes.backward[KeptKind::Batch] += targets;
  if (!spec.embedding) {
    // The stage keeps its input, which came from the stage before, and in the backward
    // the gradient of this input as well.
    bytes.forward[KeptKind::Input] += passes.boundary_bytes() - kept_input.value_or(0);
    bytes.backward[KeptKind::Input] += 2 * passes.boundary_bytes();
    if (layout.pipeline == PipelineKind::ZeroBubbleH1) {
      bytes.backward[KeptKind::PutOff] -= waiting_input;  // boundary_bytes() includes it
    }
  }
  return bytes;
}

int64_t unit_work_bytes(const Passes& passes, const UnitDescription& unit,
                        const LayoutDescription& layout, const MeshIndex& at) {
  if (unit.kind == UnitKind::Block) return block_work(passes, unit, layout, at.tp);
  if (unit.kind == UnitKind::Embedding) return 0;
  return head_work(passes, layout.tensor.sequence,
                   logits_bytes(passes, unit, layout.tensor.rank(at.tp)));
}

ActivationBytes activation_bytes(const Passes& passes, const ModelDescription& model,
                                 const LayoutDescription& layout,
                                 const PipelinePlan& plan, const MeshIndex& at) {
  ActivationBytes result;
  std::vector<ChunkBytes> chunks;
  int64_t of_blocks = 0;
  int64_t of_head = 0;
  int64_t head_kept = 0;
  const format::TpRank rank = layout.tensor.rank(at.tp);
  for (int chunk = 0; chunk < layout.chunks; ++chunk) {
    chunks.push_back(chunk_bytes(passes, model, layout, at, chunk));
    for (const UnitDescription& unit : model.units) {
      if (!is_in_stage(unit, stage_at(layout, at, chunk))) continue;
      if (unit.kind == UnitKind::Block) {
        of_blocks = std::max(of_blocks, unit_work_bytes(passes, unit, layout, at));
      } else if (unit.kind == UnitKind::Head) {
        result.logits = logits_bytes(passes, unit, rank);
        of_head = unit_work_bytes(passes, unit, layout, at);
        head_kept =
            unit.forward.kept(passes.form_of(unit), passes.tokens, rank, false).total();
      }
    }
  }
  walk(plan.of(at.pp), chunks, result);
  result.tokens = result.forwards * passes.tokens.inside * passes.token_bytes;
  // The head's kept tensors are freed before the blocks' backwards.
  result.work = std::max(of_head, of_blocks - head_kept);
  if (layout.shape.pp > 1) result.work += passes.boundary_bytes();
  return result;
}

int64_t whole_gradients(const std::vector<BucketPlan>& buckets,
                        const PrecisionSection& precision) {
  using Buffers = std::map<int64_t, int64_t>;  // number of buffers by size
  std::map<int, Buffers> units;
  for (const BucketPlan& bucket : buckets) {
    if (!bucket.grads_stay && !bucket.frozen) ++units[bucket.unit][bucket.num_elements];
  }
  Buffers most, before;
  for (const auto& [unit, own] : units) {
    for (const auto& [size, count] : own) {
      most[size] = std::max(most[size], before[size] + count);
    }
    before = own;
  }
  int64_t elements = 0;
  for (const auto& [size, count] : most) elements += size * count;
  return elements * (precision.gradients == StateType::Fp32 ? 4 : 2);
}

}  // namespace longhaul::layout
