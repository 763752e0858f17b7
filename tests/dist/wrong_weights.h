#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/families/network.h"
#include "longhaul/tensor/flat_pieces.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::testing {

/// Reads the weights of a session with one thing wrong, as a loader with a bug would.
class WrongReader {
 public:
  WrongReader(const session::Session& session, const checkpoint::WeightsSource& source,
              std::string fault)
      : session_(session), source_(source), fault_(std::move(fault)) {}

  void operator()(const format::TensorSlice& slice, int64_t begin, int64_t end,
                  format::DType dtype, std::span<std::byte> out) const {
    format::TensorSlice from = slice;
    from.name = name_of(slice.name);
    const int64_t rows = slice.global_shape[0];
    const layout::MeshIndex& index = session_.mesh().index();
    const bool last = index.dp + 1 == session_.mesh().shape().dp;
    if (fault_ == "zeroed_on_last_replica" && last && ends(slice, "2.mlp.up_proj")) {
      std::ranges::fill(out, std::byte{0});
    } else if (fault_ == "wrong_key_head" && index.tp > 0 &&
               ends(slice, "1.self_attn.k_proj")) {
      const auto& block = session_.model().network.blocks.at(1);
      rotate(from, families::attention_of(block)->head_dim, rows, begin, end, dtype, out);
    } else if (fault_ == "permuted_words" && slice.name == "lm_head.weight") {
      rotate(from, 1, 2, begin, end, dtype, out);
    } else if (fault_ == "permuted_router" && ends(slice, "2.mlp.gate")) {
      rotate(from, 1, 2, begin, end, dtype, out);
    } else if (fault_ == "permuted_tokens" && slice.name == "model.embed_tokens.weight") {
      rotate(from, rows / 2, rows, begin, end, dtype, out);
    } else {
      source_.read_flat_range(from, begin, end, dtype, out);
    }
  }

 private:
  static bool ends(const format::TensorSlice& slice, const std::string& name) {
    return slice.name.ends_with(name + ".weight");
  }

  std::string name_of(std::string name) const {
    const auto exchange = [&](const std::string& a, const std::string& b) {
      for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
        if (const size_t at = name.find(from); at != std::string::npos) {
          name.replace(at, from.size(), to);
          return;
        }
      }
    };
    if (fault_ == "swapped_layers") exchange("layers.1.", "layers.2.");
    if (fault_ == "swapped_experts") exchange("2.mlp.experts.1.", "2.mlp.experts.6.");
    if (fault_ == "swapped_gate") exchange("3.mlp.gate_proj", "3.mlp.up_proj");
    return name;
  }

  /// Reads elements [begin, end) of the slice from the tensor after its first `rows` rows
  /// were rotated so that row `by` comes first.
  void rotate(const format::TensorSlice& slice, int64_t by, int64_t rows, int64_t begin,
              int64_t end, format::DType dtype, std::span<std::byte> out) const {
    const format::TensorSlice whole =
        format::TensorSlice::whole(slice.name, slice.global_shape, dtype);
    const size_t row_bytes =
        static_cast<size_t>(slice.global_shape[1]) * format::dtype_size(dtype);
    std::vector<std::byte> values(static_cast<size_t>(slice.global_shape[0]) * row_bytes);
    source_.read(whole, dtype, values);
    const auto bytes = [&](int64_t n) {
      return values.begin() +
             static_cast<std::ptrdiff_t>(static_cast<size_t>(n) * row_bytes);
    };
    std::rotate(values.begin(), bytes(by), bytes(rows));
    size_t position = 0;
    format::TensorSlice typed = slice;
    typed.dtype = dtype;
    for (const format::TensorSlice& box : format::flat_range_boxes(typed, begin, end)) {
      const size_t size =
          static_cast<size_t>(box.num_elements()) * format::dtype_size(dtype);
      format::copy_box(whole, values, box, out.subspan(position, size));
      position += size;
    }
  }

  const session::Session& session_;
  const checkpoint::WeightsSource& source_;
  std::string fault_;
};

/// Damages the optimizer's state in the way that `fault` names, and leaves the weights
/// right.
inline void break_optimizer(train::TrainingSession& session, const std::string& fault) {
  const auto weights = [&](const tensor::Bucket& bucket) {
    return bucket.owned_weights.clone();
  };
  std::vector<at::Tensor> kept;
  for (const tensor::Bucket& bucket : session.flat().buckets())
    kept.push_back(weights(bucket));
  if (fault == "random_masters") train::initialise_weights(session.state(), 7);
  for (size_t i = 0; i < kept.size(); ++i) {
    optim::BucketState& own = session.optimizer().states()[i];
    if (fault == "random_masters")
      session.flat().buckets()[i].owned_weights.copy_(kept[i]);
    if (fault == "rounded_masters") own.master.copy_(own.master.to(at::kBFloat16));
    if (fault == "stale_moments") own.exp_avg_sq.fill_(1e-6);
  }
}

}  // namespace longhaul::testing
