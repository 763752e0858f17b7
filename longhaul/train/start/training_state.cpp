#include "longhaul/train/start/training_state.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "longhaul/tensor/device_limits.h"
#include "longhaul/tensor/flat_pieces.h"
#include "longhaul/tensor/init.h"

namespace longhaul::train {

/// Makes the values in fp32; the copy rounds the values to the nearest where masters are
/// narrower.
void initialise_weights(ModelState state, uint64_t seed) {
  constexpr int64_t kAtOnce = int64_t{1} << 20;
  const auto& buckets = state.flat.buckets();
  int64_t at_once = kAtOnce;
  if (!tensor::limits_of(state.flat.device()).writes_views) {
    for (const tensor::Bucket& bucket : buckets) {
      at_once = std::max(at_once, bucket.owned.size());
    }
  }
  const at::Tensor wide = at::empty({at_once}, at::kFloat);
  auto* const values = wide.data_ptr<float>();
  for (size_t i = 0; i < buckets.size(); ++i) {
    for (const tensor::FlatPiece& piece :
         tensor::pieces_in(buckets[i], buckets[i].owned)) {
      const tensor::Parameter& parameter = *piece.member->parameter;
      const auto [begin, end] = piece.in_member;
      const at::Tensor masters = state.optimizer.states()[i].master.narrow(
          0, piece.in_bucket - buckets[i].owned.begin, end - begin);
      for (int64_t from = begin; from < end; from += at_once) {
        const int64_t to = std::min(end, from + at_once);
        tensor::initial_values(parameter.slice(), parameter.init(), seed, from, to,
                               values);
        if (const auto row = parameter.padding_row()) {
          tensor::zero_row(parameter.slice(), *row, from, to, values);
        }
        masters.narrow(0, from - begin, to - from).copy_(wide.narrow(0, 0, to - from));
      }
    }
  }
  state.optimizer.publish_masters();
}

}  // namespace longhaul::train
