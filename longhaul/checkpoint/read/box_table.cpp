#include "longhaul/checkpoint/read/box_table.h"

#include <algorithm>
#include <tuple>

#include "longhaul/base/error.h"

namespace longhaul::checkpoint {
namespace {

bool overlap(const std::vector<int64_t>& a, const std::vector<int64_t>& a_extent,
             const std::vector<int64_t>& b, const std::vector<int64_t>& b_extent) {
  for (size_t d = 0; d < a.size(); ++d) {
    if (std::max(a[d], b[d]) >= std::min(a[d] + a_extent[d], b[d] + b_extent[d])) {
      return false;
    }
  }
  return true;
}

}  // namespace

format::TensorSlice BoxTable::Tensor::slice(const Piece& piece) const {
  format::TensorSlice result = whole;
  result.offset = piece.offset;
  result.extent = piece.extent;
  return result;
}

void BoxTable::add(size_t file, StoredBox box, const std::string& what) {
  Tensor& tensor = tensors_[{box.kind, box.slice.name}];
  format::TensorSlice& slice = box.slice;
  if (tensor.pieces.empty()) {
    tensor.whole =
        format::TensorSlice::whole(slice.name, slice.global_shape, slice.dtype);
  }
  if (tensor.whole.global_shape != slice.global_shape ||
      tensor.whole.dtype != slice.dtype) {
    fail_input("checkpoint",
               "{}: {} of {} has another shape or dtype than in an earlier rank's file",
               what, box.kind, slice.name);
  }
  tensor.pieces.push_back(
      {std::move(slice.offset), std::move(slice.extent), file, box.begin});
}

void BoxTable::settle(bool whole, const std::string& what) {
  for (auto& [key, tensor] : tensors_) {
    std::vector<Piece>& pieces = tensor.pieces;
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return std::tie(a.offset, a.extent) < std::tie(b.offset, b.extent);
    });
    pieces.erase(std::unique(pieces.begin(), pieces.end(),
                             [](const Piece& a, const Piece& b) {
                               return a.offset == b.offset && a.extent == b.extent;
                             }),
                 pieces.end());
    int64_t elements = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Piece& piece = pieces[i];
      elements += tensor.slice(piece).num_elements();
      if (piece.extent.empty()) continue;
      const int64_t end = piece.offset[0] + piece.extent[0];
      for (size_t j = i + 1; j < pieces.size() && pieces[j].offset[0] < end; ++j) {
        if (overlap(piece.offset, piece.extent, pieces[j].offset, pieces[j].extent)) {
          fail_input("checkpoint", "{}: {}: the boxes {} and {} overlap", what, key.first,
                     format::describe_slice(tensor.slice(piece)),
                     format::describe_slice(tensor.slice(pieces[j])));
        }
      }
    }
    const int64_t wanted = tensor.whole.num_elements();
    if (elements != wanted && whole) {
      fail_input("checkpoint",
                 "{}: {} of {} has {} of {} elements; a rank's file lacks its part", what,
                 key.first, key.second, elements, wanted);
    }
  }
}

const BoxTable::Tensor& BoxTable::find(const std::string& kind,
                                       const format::TensorSlice& box,
                                       const std::string& what) const {
  const auto found = tensors_.find({kind, box.name});
  if (found == tensors_.end()) {
    fail_input("checkpoint", "{}: no {} of '{}'", what, kind, box.name);
  }
  const format::TensorSlice& whole = found->second.whole;
  if (whole.global_shape != box.global_shape) {
    fail_input("checkpoint", "{}: {} of '{}' has shape {}, expected {}", what, kind,
               box.name, format::describe_shape(whole.global_shape),
               format::describe_shape(box.global_shape));
  }
  return found->second;
}

std::vector<StoredTensors::Part> BoxTable::parts_of(const std::string& kind,
                                                    const format::TensorSlice& box,
                                                    const std::string& what) const {
  const Tensor& tensor = find(kind, box, what);
  std::vector<StoredTensors::Part> parts;
  for (const Piece& piece : tensor.pieces) {
    if (overlap(piece.offset, piece.extent, box.offset, box.extent)) {
      parts.push_back({tensor.slice(piece), piece.file, piece.begin});
    }
  }
  return parts;
}

}  // namespace longhaul::checkpoint
