#include "longhaul/session/batch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <span>
#include <vector>

#include "longhaul/families/description/kept.h"
#include "longhaul/tensor/device_limits.h"

namespace longhaul::session {
namespace {

/// Takes the numbers of a micro batch to the device. On a CPU the tensors are views. To
/// any other device all numbers go in one piece of pinned memory, by one copy that
/// nobody waits for: the allocator of pinned memory keeps the piece until the copy has
/// ended. To a device without 64-bit numbers two pieces go, int32 and fp32.
class Parcel {
 public:
  explicit Parcel(at::Device device)
      : device_(device), wide_(tensor::limits_of(device).wide_types) {}

  /// Returns the dtype that numbers of dtype `type` have on the device.
  at::ScalarType type_there(at::ScalarType type) const {
    if (wide_) return type;
    return c10::isFloatingType(type) ? at::kFloat : at::kInt;
  }

  /// Makes `to` a tensor of `values` in the dtype type_there(`type`): at once on a CPU,
  /// otherwise in send(). Until then neither `to` nor `values` may be moved or freed.
  void add(at::Tensor& to, const at::Tensor& values, at::ScalarType type) {
    if (device_.is_cpu()) {
      to = values.to(type);
      return;
    }
    const at::ScalarType there = type_there(type);
    Piece& piece = pieces_[wide_ ? at::kByte : there];
    const auto each = wide_ ? static_cast<int64_t>(c10::elementSize(there)) : 1;
    const int64_t size = values.numel() * each;
    piece.parts.push_back({&to, values, there, piece.size, size});
    piece.size += (size + kAlign - 1) / kAlign * kAlign;
  }

  void send() {
    for (const auto& [type, piece] : pieces_) {
      const at::Tensor host =
          at::empty({piece.size}, at::TensorOptions(type).pinned_memory(true));
      for (const Part& part : piece.parts) part.of(host).copy_(part.values);
      const at::Tensor there = host.to(device_, /*non_blocking=*/true);
      for (const Part& part : piece.parts) *part.to = part.of(there);
    }
  }

 private:
  static constexpr int64_t kAlign = 64;
  struct Part {
    at::Tensor* to;
    at::Tensor values;
    at::ScalarType type;
    int64_t begin, size;  ///< place in the piece, in its elements

    at::Tensor of(const at::Tensor& piece) const {
      const at::Tensor part = piece.narrow(0, begin, size);
      return (part.scalar_type() == type ? part : part.view(type)).view(values.sizes());
    }
  };
  struct Piece {
    std::vector<Part> parts;
    int64_t size = 0;
  };

  at::Device device_;
  bool wide_;
  std::map<at::ScalarType, Piece> pieces_;
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

/// Adds the number of a token without a target to the numbers of those with one, until
/// there are as many as BERT's data has at most, or as there are tokens. Then all batches
/// have equally many. `targets` has `count` tokens.
void pad_numbers(std::vector<int64_t>& numbers, const int32_t* targets, int64_t count) {
  const auto usual =
      static_cast<int64_t>(std::ceil(static_cast<double>(count) * kMaskedShare));
  const auto* without =
      std::find_if(targets, targets + count, [](int32_t t) { return t < 0; });
  const int64_t wanted = std::ssize(numbers) <= usual ? usual : count;
  if (without == targets + count) return;
  numbers.resize(static_cast<size_t>(wanted), without - targets);
}

/// Returns the two words of each number, the lower one first: int32 [n, 2].
at::Tensor words_of(std::span<const int64_t> numbers) {
  at::Tensor words = at::empty({std::ssize(numbers), 2}, at::kInt);
  auto* to = words.data_ptr<int32_t>();
  for (const int64_t number : numbers) {
    *to++ = static_cast<int32_t>(number & 0xFFFFFFFF);
    *to++ = static_cast<int32_t>(number >> 32);
  }
  return words;
}

/// Returns the number of pairs of some rows. Where each shape is compiled, numbers are
/// powers of two, and the pairs behind the last one have no tokens.
int64_t pairs_of(const data::TokenBatch& batch, int64_t row, int64_t rows,
                 bool any_shapes) {
  uint64_t pairs = 0;
  for (int64_t r = row; r < row + rows; ++r) {
    pairs += batch.pairs[static_cast<size_t>(r)].size();
  }
  constexpr uint64_t kFewest = 8;
  return static_cast<int64_t>(any_shapes ? pairs
                                         : std::bit_ceil(std::max(pairs, kFewest)));
}

/// Returns the side of each token of some rows, as nn::Batch::sides counts them among
/// `pairs` pairs.
at::Tensor sides_of(const data::TokenBatch& batch, int64_t row, int64_t rows,
                    int64_t pairs) {
  at::Tensor sides = at::empty({rows * batch.seq_len}, at::kLong);
  auto* to = sides.data_ptr<int64_t>();
  int64_t before = 0;
  const int32_t* from = batch.sides.data() + row * batch.seq_len;
  for (int64_t r = row; r < row + rows; ++r) {
    for (int64_t i = 0; i < batch.seq_len; ++i, ++from) {
      *to++ = *from < 0 ? 2 * pairs : before + *from;
    }
    before += 2 * std::ssize(batch.pairs[static_cast<size_t>(r)]);
  }
  return sides;
}

/// Returns the sums of the reference of the pairs of some rows, fp64 [pairs, 2]; zeros
/// behind the last pair.
at::Tensor reference_of(const data::TokenBatch& batch, int64_t row, int64_t rows,
                        int64_t pairs) {
  std::vector<double> sums;
  for (int64_t r = row; r < row + rows; ++r) {
    for (const data::Pair& pair : batch.pairs[static_cast<size_t>(r)]) {
      sums.insert(sums.end(), pair.reference.begin(), pair.reference.end());
    }
  }
  sums.resize(static_cast<size_t>(2 * pairs), 0.0);
  return at::tensor(sums, at::kDouble).view({-1, 2});
}

}  // namespace

nn::Batch batch_of(data::TokenBatch& batch, int64_t row, int64_t rows, at::Device device,
                   bool masks_documents) {
  const int64_t seq = batch.seq_len;
  const auto of_tokens = [&](std::vector<int32_t>& values) {
    return rows_of(values, row, rows, seq);
  };
  const bool any_shapes = tensor::limits_of(device).any_shapes;
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
    const int64_t pairs = pairs_of(batch, row, rows, any_shapes);
    parcel.add(out.sides, sides_of(batch, row, rows, pairs), at::kLong);
    parcel.add(out.reference, reference_of(batch, row, rows, pairs), at::kDouble);
  }
  if (!batch.real.empty()) parcel.add(out.real, of_tokens(batch.real), at::kFloat);
  out.targets.resize(batch.targets.size());
  for (size_t term = 0; term < batch.targets.size(); ++term) {
    std::vector<int32_t>& targets = batch.targets[term];
    const auto each = static_cast<int64_t>(targets.size()) / batch.num_sequences;
    parcel.add(out.targets[term], rows_of(targets, row, rows, each), at::kLong);
  }
  std::vector<int64_t> with_target;
  const bool both_sides = !batch.document_end.empty();
  // The head of a causal model reads them only where it answers questions.
  if (!device.is_cpu() && !batch.targets.empty() && (any_shapes || both_sides)) {
    const int32_t* targets = batch.targets[0].data() + row * seq;
    with_target = numbers_of_targets(targets, rows * seq);
    if (!any_shapes) pad_numbers(with_target, targets, rows * seq);
    const auto count = static_cast<int64_t>(with_target.size());
    parcel.add(out.target_rows, at::from_blob(with_target.data(), {count}, at::kLong),
               at::kLong);
  }
  const auto first = batch.document_start.begin() + row * seq;
  // Starts that are all zero mean the plain causal mask, which needs no tensor.
  // Where each shape is compiled, all batches of such data have the tensor, or none has.
  const bool always = !any_shapes && (masks_documents || both_sides);
  const bool documents = always || std::any_of(first, first + rows * seq,
                                               [](int32_t start) { return start != 0; });
  if (documents) {
    parcel.add(out.document_start, of_tokens(batch.document_start).view({rows, seq}),
               at::kInt);
  }
  if (both_sides) {
    parcel.add(out.document_end, of_tokens(batch.document_end).view({rows, seq}),
               at::kInt);
  }
  std::vector<int32_t> bounds;
  if (!device.is_cpu() && any_shapes && (documents || both_sides)) {
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
    if (tensor::limits_of(device).wide_types) {
      parcel.add(out.sequences,
                 at::from_blob(batch.sequences.data() + row, {rows}, at::kLong),
                 at::kLong);
    } else {
      const at::Tensor words =
          words_of({batch.sequences.data() + row, static_cast<size_t>(rows)});
      parcel.add(out.sequences, words, at::kInt);
      parcel.add(out.sequence_of, words.repeat_interleave(seq, 0), at::kInt);
    }
    parcel.add(out.index, of_tokens(batch.index), at::kInt);
  }
  parcel.send();
  return out;
}

}  // namespace longhaul::session
