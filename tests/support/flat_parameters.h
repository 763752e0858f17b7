#pragma once

#include <ATen/ops/empty_like.h>

#include <vector>

#include "longhaul/tensor/flat_pieces.h"

namespace longhaul {

/// Returns the parameters in a single unit and of a single class, as one rank alone holds
/// them.
inline std::vector<tensor::FlatParameter> flat_parameters(
    const std::vector<tensor::ParameterPtr>& parameters, tensor::ParameterClass kind) {
  std::vector<tensor::FlatParameter> flat;
  for (const tensor::ParameterPtr& p : parameters) flat.push_back({p, kind});
  return flat;
}

/// Fills the weights of all buckets in the compute dtype.
inline void read_weights(tensor::FlatBuffers& flat, const tensor::FlatReader& read) {
  for (tensor::Bucket& bucket : flat.buckets()) {
    for (const tensor::FlatPiece& piece :
         tensor::pieces_in(bucket, {0, bucket.num_elements})) {
      at::Tensor target =
          bucket.weights.narrow(0, piece.in_bucket, piece.in_member.size());
      const at::Tensor host =
          target.is_cpu() ? target
                          : at::empty_like(target, target.options().device(at::kCPU));
      read(piece.member->parameter->slice(), piece.in_member.begin, piece.in_member.end,
           flat.policy().compute, tensor::bytes_of(host));
      if (!target.is_cpu()) target.copy_(host);
    }
  }
}

}  // namespace longhaul
