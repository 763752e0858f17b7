#include "longhaul/train/session/training_state.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "longhaul/tensor/init.h"

namespace longhaul::train {
namespace {

using Fill = std::function<void(const FlatPiece&, DType dtype, std::span<std::byte> out)>;

/// Fills one state tensor of a bucket piece by piece, through host memory where needed.
void fill(const at::Tensor& target, const Bucket& bucket, FlatRange range,
          const Fill& source) {
  for (const FlatPiece& piece : pieces_in(bucket, range)) {
    at::Tensor part =
        target.narrow(0, piece.in_bucket - range.begin, piece.in_member.size());
    const at::Tensor host =
        part.is_cpu() ? part : at::empty(part.sizes(), part.options().device(at::kCPU));
    source(piece, from_scalar_type(part.scalar_type()), bytes_of(host));
    if (!part.is_cpu()) part.copy_(host);
  }
}

void fill_masters(ModelState state, const Fill& source) {
  auto& buckets = state.flat.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    const optim::BucketState& own = state.optimizer.states()[i];
    fill(own.master, buckets[i], buckets[i].owned, source);
  }
  state.optimizer.publish_masters();
}

}  // namespace

/// First values are made in fp32 and rounded to the nearest where masters are not.
void initialise_weights(ModelState state, uint64_t seed) {
  constexpr int64_t kAtOnce = 65536;
  std::vector<float> wide;
  fill_masters(state, [&](const FlatPiece& piece, DType dtype, std::span<std::byte> out) {
    const Parameter& parameter = *piece.member->parameter;
    const auto make = [&](int64_t begin, int64_t end, float* values) {
      initial_values(parameter.slice(), parameter.init(), seed, begin, end, values);
      if (const auto row = parameter.padding_row()) {
        zero_row(parameter.slice(), *row, begin, end, values);
      }
    };
    const auto [begin, end] = piece.in_member;
    if (dtype == DType::F32) {
      make(begin, end, reinterpret_cast<float*>(out.data()));
      return;
    }
    for (int64_t from = begin; from < end; from += kAtOnce) {
      const int64_t count = std::min(kAtOnce, end - from);
      wide.resize(static_cast<size_t>(count));
      make(from, from + count, wide.data());
      const auto bytes = static_cast<size_t>(from - begin) * dtype_size(dtype);
      convert_elements(reinterpret_cast<const std::byte*>(wide.data()), DType::F32,
                       out.data() + bytes, dtype, wide.size());
    }
  });
}

void load_weights(ModelState state, const FlatReader& read) {
  fill_masters(state, [&](const FlatPiece& piece, DType dtype, std::span<std::byte> out) {
    read(piece.member->parameter->slice(), piece.in_member.begin, piece.in_member.end,
         dtype, out);
  });
}

}  // namespace longhaul::train
