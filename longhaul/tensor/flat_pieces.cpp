#include "longhaul/tensor/flat_pieces.h"

#include "longhaul/base/error.h"

namespace longhaul::tensor {

std::vector<FlatPiece> pieces_in(const Bucket& bucket, layout::FlatRange range) {
  std::vector<FlatPiece> pieces;
  for (const FlatMember& member : bucket.members) {
    const layout::FlatRange part = Bucket::overlap(member, range);
    if (part.size() > 0) pieces.push_back({&member, part, member.begin + part.begin});
  }
  return pieces;
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  LH_ASSERT(tensor.is_cpu() && tensor.is_contiguous(), "not plain memory");
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace longhaul::tensor
