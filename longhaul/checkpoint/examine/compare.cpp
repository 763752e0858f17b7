#include "longhaul/checkpoint/examine/compare.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace longhaul::checkpoint {
namespace {

constexpr int64_t kPartElements = int64_t{1} << 24;

using Key = std::pair<std::string, std::string>;

/// Adds the differences of the elements that both tensors have in a box.
void add_box(const CheckpointReader& a, const CheckpointReader& b, const Key& key,
             const format::TensorSlice& box, TensorDifference& total) {
  std::vector<float> left, right;
  for (int64_t at = 0; at < box.num_elements(); at += kPartElements) {
    const int64_t end = std::min(box.num_elements(), at + kPartElements);
    left.resize(static_cast<size_t>(end - at));
    right.resize(left.size());
    a.read_flat_range(key.first, box, at, end, format::DType::F32,
                      std::as_writable_bytes(std::span(left)));
    b.read_flat_range(key.first, box, at, end, format::DType::F32,
                      std::as_writable_bytes(std::span(right)));
    // The sums hold squares. Their roots are taken at the end.
    for (size_t i = 0; i < left.size(); ++i) {
      const double x = static_cast<double>(left[i]);
      const double y = static_cast<double>(right[i]);
      total.difference += (x - y) * (x - y);
      total.norm += y * y;
      const double gap = std::abs(x - y);
      if (!(gap <= total.largest)) total.largest = gap;  // a NaN stays the largest
    }
    total.elements += end - at;
  }
}

TensorDifference compare_tensor(const CheckpointReader& a, const CheckpointReader& b,
                                const Key& key) {
  TensorDifference result{key.first, key.second};
  const std::vector<format::TensorSlice> ours = a.boxes(key.first, key.second);
  const std::vector<format::TensorSlice> theirs = b.boxes(key.first, key.second);
  for (const format::TensorSlice& x : ours) {
    for (const format::TensorSlice& y : theirs) {
      if (x.global_shape != y.global_shape) {
        result.same_shape = false;
        return result;
      }
      if (!format::is_float(x.dtype) || !format::is_float(y.dtype)) continue;
      if (const auto common = format::intersect(x, y))
        add_box(a, b, key, *common, result);
    }
  }
  result.norm = std::sqrt(result.norm);
  result.difference = std::sqrt(result.difference);
  return result;
}

}  // namespace

double Comparison::relative(const TensorDifference& tensor) const {
  double kind = 0.0;
  for (const TensorDifference& other : tensors) {
    if (other.kind == tensor.kind) kind += other.norm * other.norm;
  }
  const double size = tensor.norm + 1e-6 * std::sqrt(kind);
  if (tensor.difference == 0.0) return 0.0;
  return tensor.difference / size;
}

Comparison compare(const CheckpointReader& a, const CheckpointReader& b) {
  std::set<Key> keys;
  for (const CheckpointReader* reader : {&a, &b}) {
    for (const Key& key : reader->names()) keys.insert(key);
  }
  Comparison result;
  for (const Key& key : keys) result.tensors.push_back(compare_tensor(a, b, key));
  return result;
}

}  // namespace longhaul::checkpoint
