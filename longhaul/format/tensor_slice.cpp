#include "longhaul/format/tensor_slice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul::format {
namespace {

int64_t product(const std::vector<int64_t>& values) {
  int64_t result = 1;
  for (const int64_t value : values) result *= value;
  return result;
}

// The largest box from a flat index on that longest_step() finds: `rows` rows of `dim`,
// with all elements of the dims behind it.
struct Step {
  size_t dim;
  int64_t rows;
};

Step longest_step(const std::vector<int64_t>& extent, int64_t begin, int64_t end) {
  // `stride` is the number of elements of one row of `dim`.
  int64_t stride = 1;
  size_t dim = extent.size() - 1;
  while (dim > 0) {
    const int64_t outer = stride * extent[dim];
    if (begin % outer != 0 || end - begin < outer) break;
    stride = outer;
    --dim;
  }
  const int64_t to_edge =
      dim == 0 ? end - begin : stride * extent[dim] - begin % (stride * extent[dim]);
  return {dim, std::min(end - begin, to_edge) / stride};
}

}  // namespace

TensorSlice TensorSlice::whole(std::string name, std::vector<int64_t> shape,
                               DType dtype) {
  TensorSlice slice;
  slice.name = std::move(name);
  slice.dtype = dtype;
  slice.offset.assign(shape.size(), 0);
  slice.extent = shape;
  slice.global_shape = std::move(shape);
  return slice;
}

int64_t TensorSlice::num_elements() const { return product(extent); }
bool TensorSlice::is_whole() const { return extent == global_shape; }

void TensorSlice::check() const {
  const size_t rank = global_shape.size();
  bool good = offset.size() == rank && extent.size() == rank;
  for (size_t d = 0; good && d < rank; ++d) {
    good = offset[d] >= 0 && extent[d] >= 0 && global_shape[d] >= 0 &&
           offset[d] <= global_shape[d] && extent[d] <= global_shape[d] - offset[d];
  }
  LH_CHECK(good, "tensor slice",
           "{}: offset [{}] and extent [{}] do not lie in shape [{}]", name,
           fmt::join(offset, ", "), fmt::join(extent, ", "),
           fmt::join(global_shape, ", "));
}

std::vector<TensorSlice> flat_range_boxes(const TensorSlice& slice, int64_t begin,
                                          int64_t end) {
  LH_CHECK(begin >= 0 && begin <= end && end <= slice.num_elements(), "tensor slice",
           "{}: range [{}, {}) of {} elements", slice.name, begin, end,
           slice.num_elements());
  std::vector<TensorSlice> boxes;
  const size_t rank = slice.extent.size();
  if (begin == end) return boxes;
  if (rank == 0) return {slice};
  while (begin < end) {
    const Step step = longest_step(slice.extent, begin, end);
    TensorSlice box = slice;
    int64_t rest = begin;
    int64_t taken = step.rows;
    for (size_t d = rank; d-- > 0;) {
      const int64_t index = rest % slice.extent[d];
      rest /= slice.extent[d];
      box.offset[d] = slice.offset[d] + index;
      box.extent[d] = d > step.dim ? slice.extent[d] : (d == step.dim ? step.rows : 1);
      if (d > step.dim) taken *= slice.extent[d];
    }
    boxes.push_back(std::move(box));
    begin += taken;
  }
  return boxes;
}

std::optional<TensorSlice> intersect(const TensorSlice& a, const TensorSlice& b) {
  LH_CHECK(a.global_shape == b.global_shape, "tensor slice",
           "{}: boxes of two shapes, [{}] and [{}]", a.name,
           fmt::join(a.global_shape, ", "), fmt::join(b.global_shape, ", "));
  TensorSlice both = a;
  for (size_t d = 0; d < a.extent.size(); ++d) {
    const int64_t from = std::max(a.offset[d], b.offset[d]);
    const int64_t to = std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]);
    if (from >= to) return std::nullopt;
    both.offset[d] = from;
    both.extent[d] = to - from;
  }
  return both;
}

std::string describe_shape(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string describe_slice(const TensorSlice& slice) {
  if (slice.is_whole()) return slice.name + " " + describe_shape(slice.global_shape);
  std::string ranges;
  for (size_t d = 0; d < slice.extent.size(); ++d) {
    ranges += fmt::format("{}{}:{}", d == 0 ? "" : ", ", slice.offset[d],
                          slice.offset[d] + slice.extent[d]);
  }
  return fmt::format("{} [{}] of {}", slice.name, ranges,
                     describe_shape(slice.global_shape));
}

}  // namespace longhaul::format
