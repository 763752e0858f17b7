#include "longhaul/tensor/flat_pieces.h"

#include <ATen/ops/empty_like.h>

#include "longhaul/base/error.h"

namespace longhaul {

std::vector<FlatPiece> pieces_in(const Bucket& bucket, FlatRange range) {
  std::vector<FlatPiece> pieces;
  for (const FlatMember& member : bucket.members) {
    const FlatRange part = Bucket::overlap(member, range);
    if (part.size() > 0) pieces.push_back({&member, part, member.begin + part.begin});
  }
  return pieces;
}

void read_weights(FlatBuffers& flat, const FlatReader& read) {
  for (Bucket& bucket : flat.buckets()) {
    for (const FlatPiece& piece : pieces_in(bucket, {0, bucket.num_elements})) {
      at::Tensor target =
          bucket.weights.narrow(0, piece.in_bucket, piece.in_member.size());
      const at::Tensor host =
          target.is_cpu() ? target
                          : at::empty_like(target, target.options().device(at::kCPU));
      read(piece.member->parameter->slice(), piece.in_member.begin, piece.in_member.end,
           flat.policy().compute, bytes_of(host));
      if (!target.is_cpu()) target.copy_(host);
    }
  }
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  LH_ASSERT(tensor.is_cpu() && tensor.is_contiguous(), "not plain memory");
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace longhaul
