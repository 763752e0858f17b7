#include "longhaul/train/proof/source_files.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "longhaul/tensor/flat_pieces.h"

namespace longhaul::train {
namespace {

/// Elements of a matrix that are in memory at a time: 32 MiB.
constexpr int64_t kBlockElements = int64_t{1} << 23;

}  // namespace

at::Tensor SourceFiles::vector(const std::string& name, int64_t n) const {
  return part(name, {n}, 0, 0, n);
}

at::Tensor SourceFiles::rows(const std::string& name, int64_t rows, int64_t width,
                             const at::Tensor& ids) const {
  const at::Tensor found = at::empty({ids.size(0), width}, at::kFloat);
  format::TensorSlice box =
      format::TensorSlice::whole(name, {rows, width}, format::DType::F32);
  box.extent[0] = 1;
  for (int64_t i = 0; i < ids.size(0); ++i) {
    box.offset[0] = ids[i].item<int64_t>();
    source_.read(box, format::DType::F32, tensor::bytes_of(found.narrow(0, i, 1)));
  }
  return found;
}

at::Tensor SourceFiles::product(const at::Tensor& x, const std::string& name,
                                int64_t out) const {
  return multiply(x, out, [&](int64_t begin, int64_t count) {
    return part(name, {out, x.size(1)}, 0, begin, count);
  });
}

at::Tensor SourceFiles::transposed_product(const at::Tensor& x, const std::string& name,
                                           int64_t out) const {
  return multiply(x, out, [&](int64_t begin, int64_t count) {
    return part(name, {x.size(1), out}, 1, begin, count).t();
  });
}

at::Tensor SourceFiles::part(const std::string& name, const std::vector<int64_t>& shape,
                             size_t dim, int64_t begin, int64_t count) const {
  format::TensorSlice box = format::TensorSlice::whole(name, shape, format::DType::F32);
  box.offset[dim] = begin;
  box.extent[dim] = count;
  at::Tensor values = at::empty(box.extent, at::kFloat);
  source_.read(box, format::DType::F32, tensor::bytes_of(values));
  return values;
}

at::Tensor SourceFiles::multiply(
    const at::Tensor& x, int64_t out,
    const std::function<at::Tensor(int64_t, int64_t)>& read) const {
  const int64_t ranks = world_.size();
  const int64_t share = (out + ranks - 1) / ranks;
  const int64_t begin = std::min(share * world_.rank(), out);
  const int64_t end = std::min(begin + share, out);
  const int64_t block = std::clamp<int64_t>(kBlockElements / x.size(1), 1, share);
  const at::Tensor columns = x.t();
  at::Tensor mine = at::zeros({share, x.size(0)}, at::kFloat);
  for (int64_t row = begin; row < end; row += block) {
    const int64_t count = std::min(block, end - row);
    mine.narrow(0, row - begin, count).copy_(at::mm(read(row, count), columns));
  }
  if (ranks == 1) return mine.t().contiguous();
  at::Tensor all = at::empty({share * ranks, x.size(0)}, at::kFloat);
  world_
      .all_gather({mine.data_ptr(), mine.numel(), format::DType::F32},
                  {all.data_ptr(), all.numel(), format::DType::F32})
      ->wait();
  return all.narrow(0, 0, out).t().contiguous();
}

}  // namespace longhaul::train
