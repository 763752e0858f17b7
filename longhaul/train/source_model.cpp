#include "longhaul/train/source_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numbers>

#include "longhaul/tensor/flat_pieces.h"

// Shapes: B sequences of T tokens, N = B T, H hidden, D head dim. Formulas are those of
// modeling_llama.py and modeling_rope_utils.py of transformers.

namespace longhaul::train {
namespace {

/// Elements of a matrix that are in memory at a time: 32 MiB.
constexpr int64_t kBlockElements = int64_t{1} << 23;

std::string layer_prefix(int64_t layer) {
  return "model.layers." + std::to_string(layer) + ".";
}

}  // namespace

SourceModel::SourceModel(const checkpoint::WeightsSource& source,
                         const ModelConfig& config, comm::Communicator& world)
    : source_(source),
      config_(llama_settings(config)),
      vocab_size_(config.vocab_size),
      world_(world) {}

bool SourceModel::knows(const ModelConfig& config) {
  return config.model_type == "llama";
}

at::Tensor SourceModel::vector(const std::string& name) const {
  at::Tensor values = at::empty({config_.hidden_size}, at::kFloat);
  source_.read(TensorSlice::whole(name, {config_.hidden_size}, DType::F32), DType::F32,
               bytes_of(values));
  return values;
}

/// x W^T, W [out, in].
at::Tensor SourceModel::product(const at::Tensor& x, const std::string& name,
                                int64_t out) const {
  const int64_t in = x.size(1);
  const int64_t ranks = world_.size();
  const int64_t share = (out + ranks - 1) / ranks;
  const int64_t begin = std::min(share * world_.rank(), out);
  const int64_t end = std::min(begin + share, out);
  const int64_t block = std::clamp<int64_t>(kBlockElements / in, 1, share);
  const at::Tensor columns = x.t();
  at::Tensor mine = at::zeros({share, x.size(0)}, at::kFloat);
  at::Tensor rows = at::empty({block, in}, at::kFloat);
  for (int64_t row = begin; row < end; row += block) {
    TensorSlice box = TensorSlice::whole(name, {out, in}, DType::F32);
    box.offset = {row, 0};
    box.extent = {std::min(block, end - row), in};
    const at::Tensor some = rows.narrow(0, 0, box.extent[0]);
    source_.read(box, DType::F32, bytes_of(some));
    mine.narrow(0, row - begin, box.extent[0]).copy_(at::mm(some, columns));
  }
  if (ranks == 1) return mine.t().contiguous();
  at::Tensor all = at::empty({share * ranks, x.size(0)}, at::kFloat);
  world_
      .all_gather({mine.data_ptr(), mine.numel(), DType::F32},
                  {all.data_ptr(), all.numel(), DType::F32})
      ->wait();
  return all.narrow(0, 0, out).t().contiguous();
}

at::Tensor SourceModel::norm(const at::Tensor& x, const std::string& name) const {
  const at::Tensor mean = (x * x).mean(-1, /*keepdim=*/true);
  return x * at::rsqrt(mean + config_.rms_norm_eps) * vector(name);
}

at::Tensor SourceModel::embed(const at::Tensor& ids) const {
  const at::Tensor rows = at::empty({ids.size(0), config_.hidden_size}, at::kFloat);
  TensorSlice box = TensorSlice::whole("model.embed_tokens.weight",
                                       {vocab_size_, config_.hidden_size}, DType::F32);
  box.extent[0] = 1;
  for (int64_t i = 0; i < ids.size(0); ++i) {
    box.offset[0] = ids[i].item<int64_t>();
    source_.read(box, DType::F32, bytes_of(rows.narrow(0, i, 1)));
  }
  return rows;
}

/// Radians per position, [D / 2], fp64.
at::Tensor SourceModel::frequencies() const {
  const RopeConfig& rope = config_.rope;
  const auto exponents =
      at::arange(0, config_.head_dim, 2, at::kDouble) / config_.head_dim;
  at::Tensor plain = at::pow(rope.theta, -exponents);
  if (rope.kind == RopeConfig::Kind::Plain) return plain;
  if (rope.kind == RopeConfig::Kind::Linear) return plain / rope.factor;
  // llama3: long waves are stretched, short ones kept, in between a bit of both.
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const at::Tensor waves_in_original = original * plain / (2.0 * std::numbers::pi);
  const at::Tensor kept = ((waves_in_original - rope.low_freq_factor) /
                           (rope.high_freq_factor - rope.low_freq_factor))
                              .clamp(0.0, 1.0);
  return plain * (kept + (1.0 - kept) / rope.factor);
}

/// Rotates x [B, heads, T, D] by the angles of its positions.
at::Tensor SourceModel::rotate(const at::Tensor& x, const at::Tensor& positions) const {
  const at::Tensor half = at::outer(positions.to(at::kDouble), frequencies());
  const at::Tensor angles = at::cat({half, half}, 1);  // [T, D]
  const auto parts = x.chunk(2, -1);
  const at::Tensor turned = at::cat({-parts[1], parts[0]}, -1);
  return x * angles.cos().to(at::kFloat) + turned * angles.sin().to(at::kFloat);
}

at::Tensor SourceModel::attention(const at::Tensor& x, const std::string& layer,
                                  const at::Tensor& positions) const {
  const int64_t length = positions.size(0);
  const int64_t groups = config_.num_attention_heads / config_.num_key_value_heads;
  const auto project = [&](const char* name, int64_t heads) {
    return product(x, layer + "self_attn." + name + ".weight", heads * config_.head_dim)
        .view({-1, length, heads, config_.head_dim})
        .transpose(1, 2);  // [B, heads, T, D]
  };
  const at::Tensor q = rotate(project("q_proj", config_.num_attention_heads), positions);
  const at::Tensor k = rotate(project("k_proj", config_.num_key_value_heads), positions)
                           .repeat_interleave(groups, 1);
  const at::Tensor v =
      project("v_proj", config_.num_key_value_heads).repeat_interleave(groups, 1);
  const double scale = 1.0 / std::sqrt(static_cast<double>(config_.head_dim));
  const at::Tensor hidden = at::ones({length, length}, at::kBool).triu(1);
  const at::Tensor scores =
      (at::matmul(q, k.transpose(2, 3)) * scale)
          .masked_fill(hidden, -std::numeric_limits<double>::infinity());
  const at::Tensor mixed = at::matmul(at::softmax(scores, -1), v);
  return product(mixed.transpose(1, 2).reshape({x.size(0), -1}),
                 layer + "self_attn.o_proj.weight", config_.hidden_size);
}

at::Tensor SourceModel::layer(int64_t number, const at::Tensor& x,
                              const at::Tensor& positions) const {
  const std::string name = layer_prefix(number);
  const at::Tensor h =
      x + attention(norm(x, name + "input_layernorm.weight"), name, positions);
  const at::Tensor in = norm(h, name + "post_attention_layernorm.weight");
  const int64_t inner = config_.intermediate_size;
  const at::Tensor gate = product(in, name + "mlp.gate_proj.weight", inner);
  const at::Tensor up = product(in, name + "mlp.up_proj.weight", inner);
  return h + product(gate * at::sigmoid(gate) * up, name + "mlp.down_proj.weight",
                     config_.hidden_size);
}

at::Tensor SourceModel::logits(const at::Tensor& x) const {
  return product(
      norm(x, "model.norm.weight"),
      config_.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight",
      vocab_size_);
}

}  // namespace longhaul::train
