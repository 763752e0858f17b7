#include "longhaul/session/batch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <vector>

namespace longhaul::session {
namespace {

/// Takes the integers of a micro batch to the device. On a CPU the tensors are views. To
/// any other device all integers go in one piece of pinned memory, by one copy that
/// nobody waits for: the allocator of pinned memory keeps the piece until the copy has
/// ended.
class Parcel {
 public:
  explicit Parcel(at::Device device) : device_(device) {}

  /// Makes `to` a tensor of `values` in the dtype `type`: at once on a CPU, otherwise in
  /// send(). Until then neither `to` nor `values` may be moved or freed.
  void add(at::Tensor& to, const at::Tensor& values, at::ScalarType type) {
    if (device_.is_cpu()) {
      to = values.to(type);
      return;
    }
    const auto bytes = values.numel() * static_cast<int64_t>(c10::elementSize(type));
    parts_.push_back({&to, values, type, size_, bytes});
    size_ += (bytes + kAlign - 1) / kAlign * kAlign;
  }

  void send() {
    if (parts_.empty()) return;
    const at::Tensor host =
        at::empty({size_}, at::TensorOptions(at::kByte).pinned_memory(true));
    for (const Part& part : parts_) part.of(host).copy_(part.values);
    const at::Tensor there = host.to(device_, /*non_blocking=*/true);
    for (const Part& part : parts_) *part.to = part.of(there);
  }

 private:
  static constexpr int64_t kAlign = 64;
  struct Part {
    at::Tensor* to;
    at::Tensor values;
    at::ScalarType type;
    int64_t begin, bytes;  ///< place in the parcel

    at::Tensor of(const at::Tensor& parcel) const {
      return parcel.narrow(0, begin, bytes).view(type).view(values.sizes());
    }
  };

  at::Device device_;
  std::vector<Part> parts_;
  int64_t size_ = 0;
};

/// Returns the values of some rows. `each`: values of a row.
at::Tensor rows_of(std::vector<int32_t>& values, int64_t row, int64_t rows,
                   int64_t each) {
  return at::from_blob(values.data() + row * each, {rows * each}, at::kInt);
}

/// Returns where documents begin among the tokens of the rows, and then the number of all
/// tokens. Returns an empty list if a token may attend beyond the tokens that have its
/// own start and end. `end` is null where documents are causal.
std::vector<int32_t> bounds_of(const int32_t* start, const int32_t* end, int64_t rows,
                               int64_t seq) {
  std::vector<int32_t> bounds;
  for (int64_t row = 0; row < rows; ++row, start += seq) {
    int64_t from = 0;
    while (from < seq) {
      int64_t to = from + 1;
      while (to < seq && start[to] == start[from]) ++to;
      bool whole = start[from] == from;
      for (int64_t i = from; end != nullptr && i < to; ++i) {
        whole = whole && end[row * seq + i] == to;
      }
      if (!whole) return {};
      bounds.push_back(static_cast<int32_t>(row * seq + from));
      from = to;
    }
  }
  bounds.push_back(static_cast<int32_t>(rows * seq));
  return bounds;
}

int64_t longest_of(const std::vector<int32_t>& bounds) {
  int64_t longest = 0;
  for (size_t i = 1; i < bounds.size(); ++i) {
    longest = std::max<int64_t>(longest, bounds[i] - bounds[i - 1]);
  }
  return longest;
}

std::vector<int64_t> numbers_of_targets(const int32_t* targets, int64_t count) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; ++i) {
    if (targets[i] >= 0) numbers.push_back(i);
  }
  return numbers;
}

/// Returns the side of each token of some rows, as nn::Batch::sides counts them.
at::Tensor sides_of(const data::TokenBatch& batch, int64_t row, int64_t rows) {
  int64_t all = 0;
  for (int64_t r = row; r < row + rows; ++r) {
    all += 2 * std::ssize(batch.pairs[static_cast<size_t>(r)]);
  }
  at::Tensor sides = at::empty({rows * batch.seq_len}, at::kLong);
  auto* to = sides.data_ptr<int64_t>();
  int64_t before = 0;
  const int32_t* from = batch.sides.data() + row * batch.seq_len;
  for (int64_t r = row; r < row + rows; ++r) {
    for (int64_t i = 0; i < batch.seq_len; ++i, ++from) {
      *to++ = *from < 0 ? all : before + *from;
    }
    before += 2 * std::ssize(batch.pairs[static_cast<size_t>(r)]);
  }
  return sides;
}

/// Returns the sums of the reference of the pairs of some rows, fp64 [pairs, 2].
at::Tensor reference_of(const data::TokenBatch& batch, int64_t row, int64_t rows) {
  std::vector<double> sums;
  for (int64_t r = row; r < row + rows; ++r) {
    for (const data::Pair& pair : batch.pairs[static_cast<size_t>(r)]) {
      sums.insert(sums.end(), pair.reference.begin(), pair.reference.end());
    }
  }
  return at::tensor(sums, at::kDouble).view({-1, 2});
}

}  // namespace

nn::Batch batch_of(data::TokenBatch& batch, int64_t row, int64_t rows,
                   at::Device device) {
  const int64_t seq = batch.seq_len;
  const auto of_tokens = [&](std::vector<int32_t>& values) {
    return rows_of(values, row, rows, seq);
  };
  Parcel parcel(device);
  nn::Batch out;
  out.rows = rows;
  out.seq = seq;
  parcel.add(out.tokens, of_tokens(batch.tokens), at::kInt);
  parcel.add(out.positions, of_tokens(batch.positions), at::kInt);
  if (!batch.segments.empty()) {
    parcel.add(out.segments, of_tokens(batch.segments), at::kInt);
  }
  if (!batch.pairs.empty()) {
    parcel.add(out.sides, sides_of(batch, row, rows), at::kLong);
    parcel.add(out.reference, reference_of(batch, row, rows), at::kDouble);
  }
  if (!batch.real.empty()) parcel.add(out.real, of_tokens(batch.real), at::kFloat);
  out.targets.resize(batch.targets.size());
  for (size_t term = 0; term < batch.targets.size(); ++term) {
    std::vector<int32_t>& targets = batch.targets[term];
    const auto each = static_cast<int64_t>(targets.size()) / batch.num_sequences;
    parcel.add(out.targets[term], rows_of(targets, row, rows, each), at::kLong);
  }
  std::vector<int64_t> with_target;
  if (!device.is_cpu() && !batch.targets.empty()) {
    with_target = numbers_of_targets(batch.targets[0].data() + row * seq, rows * seq);
    const auto count = static_cast<int64_t>(with_target.size());
    parcel.add(out.target_rows, at::from_blob(with_target.data(), {count}, at::kLong),
               at::kLong);
  }
  const auto first = batch.document_start.begin() + row * seq;
  // Starts that are all zero mean the plain causal mask, which needs no tensor.
  const bool documents =
      std::any_of(first, first + rows * seq, [](int32_t start) { return start != 0; });
  if (documents) {
    parcel.add(out.document_start, of_tokens(batch.document_start).view({rows, seq}),
               at::kInt);
  }
  const bool both_sides = !batch.document_end.empty();
  if (both_sides) {
    parcel.add(out.document_end, of_tokens(batch.document_end).view({rows, seq}),
               at::kInt);
  }
  std::vector<int32_t> bounds;
  if (!device.is_cpu() && (documents || both_sides)) {
    bounds = bounds_of(batch.document_start.data() + row * seq,
                       both_sides ? batch.document_end.data() + row * seq : nullptr, rows,
                       seq);
  }
  if (!bounds.empty()) {
    const auto count = static_cast<int64_t>(bounds.size());
    parcel.add(out.documents.bounds, at::from_blob(bounds.data(), {count}, at::kInt),
               at::kInt);
    out.documents.longest = longest_of(bounds);
  }
  if (!batch.sequences.empty()) {
    parcel.add(out.sequences,
               at::from_blob(batch.sequences.data() + row, {rows}, at::kLong), at::kLong);
    parcel.add(out.index, of_tokens(batch.index), at::kInt);
  }
  parcel.send();
  return out;
}

}  // namespace longhaul::session
