#include "longhaul/imports/mosaic.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "longhaul/base/error.h"

namespace longhaul::imports {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kWindowBytes = int64_t{16} << 20;

int64_t product(const Ints& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{1}, std::multiplies<>());
}

format::TensorSlice slice_of(const Ints& shape, format::DType dtype, const Ints& offset,
                             const Ints& extent) {
  return {"", shape, dtype, offset, extent};
}

// Computes the part of a box that lies in another one. Returns false if there is none.
bool overlap(const Ints& a, const Ints& a_extent, const Ints& b, const Ints& b_extent,
             Ints& offset, Ints& extent) {
  offset.resize(a.size());
  extent.resize(a.size());
  for (size_t d = 0; d < a.size(); ++d) {
    offset[d] = std::max(a[d], b[d]);
    extent[d] = std::min(a[d] + a_extent[d], b[d] + b_extent[d]) - offset[d];
    if (extent[d] <= 0) return false;
  }
  return true;
}

// Reads elements that do not lie side by side, one at a time.
void gather(const ForeignFiles& files, const StoredTensor& stored, const Ints& from,
            const Ints& extent, std::span<std::byte> out) {
  const size_t size = format::dtype_size(stored.dtype);
  const std::byte* base = files.map(stored.file).data() + stored.begin;
  Ints index(extent.size(), 0);
  for (size_t at = 0; at < out.size(); at += size) {
    int64_t element = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      element += (from[d] + index[d]) * stored.strides[d];
    }
    std::memcpy(out.data() + at, base + static_cast<size_t>(element) * size, size);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < extent[d]) break;
      index[d] = 0;
    }
  }
}

// Reads a box of a stored tensor in its own dtype.
void read_stored(const ForeignFiles& files, const StoredTensor& stored, const Ints& from,
                 const Ints& extent, std::span<std::byte> out) {
  if (!stored.contiguous()) {
    gather(files, stored, from, extent, out);
    return;
  }
  const format::TensorSlice whole =
      format::TensorSlice::whole("", stored.shape, stored.dtype);
  format::read_box(
      [&](uint64_t offset, std::span<std::byte> bytes) {
        files.read(stored.file, stored.begin + offset, bytes);
      },
      whole, slice_of(stored.shape, stored.dtype, from, extent), out, kWindowBytes);
}

}  // namespace

bool StoredTensor::contiguous() const {
  int64_t expected = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

Mosaic::Mosaic(std::vector<int64_t> shape, format::DType dtype)
    : shape_(std::move(shape)), dtype_(dtype) {}

Mosaic::Mosaic(const StoredTensor& tensor) : shape_(tensor.shape), dtype_(tensor.dtype) {
  if (num_elements() > 0) {
    pieces_.push_back({Ints(shape_.size(), 0), shape_, Ints(shape_.size(), 0), tensor});
  }
}

Mosaic Mosaic::concatenate(const std::vector<Mosaic>& parts, size_t dim,
                           const std::string& what) {
  LH_CHECK(!parts.empty(), "import", "{}: no parts", what);
  Ints shape = parts.front().shape_;
  if (dim >= shape.size()) fail_input("import", "{}: has {} dims", what, shape.size());
  shape[dim] = 0;
  for (const Mosaic& part : parts) {
    Ints other = part.shape_;
    if (other.size() == shape.size()) other[dim] = shape[dim];
    if (other != shape || part.dtype_ != parts.front().dtype_) {
      fail_input("import", "{}: its parts do not fit each other: {} {} and {} {}", what,
                 format::dtype_name(parts.front().dtype_),
                 format::describe_shape(parts.front().shape_),
                 format::dtype_name(part.dtype_), format::describe_shape(part.shape_));
    }
    shape[dim] += part.shape_[dim];
  }
  Mosaic result(shape, parts.front().dtype_);
  Ints to(shape.size(), 0);
  for (const Mosaic& part : parts) {
    result.put(part, Ints(shape.size(), 0), part.shape_, to);
    to[dim] += part.shape_[dim];
  }
  return result;
}

int64_t Mosaic::num_elements() const { return product(shape_); }

uint64_t Mosaic::bytes() const {
  return static_cast<uint64_t>(num_elements()) * format::dtype_size(dtype_);
}

void Mosaic::put(const Mosaic& part, const std::vector<int64_t>& from,
                 const std::vector<int64_t>& extent, const std::vector<int64_t>& to) {
  LH_CHECK(part.dtype_ == dtype_ && part.shape_.size() == shape_.size(), "import",
           "a part of {} {} put into {} {}", format::dtype_name(part.dtype_),
           format::describe_shape(part.shape_), format::dtype_name(dtype_),
           format::describe_shape(shape_));
  slice_of(part.shape_, dtype_, from, extent).check();
  slice_of(shape_, dtype_, to, extent).check();
  Ints offset;
  Ints size;
  for (const Piece& piece : part.pieces_) {
    if (!overlap(piece.offset, piece.extent, from, extent, offset, size)) continue;
    Piece next{offset, size, piece.from, piece.stored};
    for (size_t d = 0; d < offset.size(); ++d) {
      next.from[d] += offset[d] - piece.offset[d];
      next.offset[d] = offset[d] - from[d] + to[d];
    }
    pieces_.push_back(std::move(next));
  }
}

Mosaic Mosaic::narrow(size_t dim, int64_t begin, int64_t end) const {
  LH_CHECK(dim < shape_.size() && 0 <= begin && begin <= end && end <= shape_[dim],
           "import", "{} to {} of dim {} of {}", begin, end, dim,
           format::describe_shape(shape_));
  Ints extent = shape_;
  extent[dim] = end - begin;
  Ints from(shape_.size(), 0);
  from[dim] = begin;
  Mosaic result(extent, dtype_);
  result.put(*this, from, extent, Ints(shape_.size(), 0));
  return result;
}

void Mosaic::check_complete(const std::string& what) const {
  int64_t elements = 0;
  Ints offset;
  Ints extent;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    elements += product(pieces_[i].extent);
    for (size_t j = i + 1; j < pieces_.size(); ++j) {
      if (overlap(pieces_[i].offset, pieces_[i].extent, pieces_[j].offset,
                  pieces_[j].extent, offset, extent)) {
        throw InputError("import", what + ": two stored parts overlap");
      }
    }
  }
  if (elements != num_elements()) {
    fail_input("import", "{}: only {} of {} elements are there; a part is missing", what,
               elements, num_elements());
  }
}

void Mosaic::read(const ForeignFiles& files, const std::vector<int64_t>& offset,
                  const std::vector<int64_t>& extent, format::DType dst,
                  std::span<std::byte> out) const {
  const format::TensorSlice wanted = slice_of(shape_, dst, offset, extent);
  wanted.check();
  Ints begin;
  Ints size;
  std::vector<std::byte> buffer;
  for (const Piece& piece : pieces_) {
    if (!overlap(piece.offset, piece.extent, offset, extent, begin, size)) continue;
    Ints from = piece.from;
    for (size_t d = 0; d < from.size(); ++d) from[d] += begin[d] - piece.offset[d];
    if (size == extent && dst == dtype_) {
      read_stored(files, piece.stored, from, size, out);
      continue;
    }
    buffer.resize(static_cast<size_t>(product(size)) * format::dtype_size(dtype_));
    read_stored(files, piece.stored, from, size, buffer);
    format::copy_box(slice_of(shape_, dtype_, begin, size), buffer, wanted, out);
  }
}

void Mosaic::read_all(const ForeignFiles& files, format::DType dst,
                      std::span<std::byte> out) const {
  read(files, Ints(shape_.size(), 0), shape_, dst, out);
}

int64_t count_differences(const ForeignFiles& files, const Mosaic& a, const Mosaic& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return a.num_elements();
  const auto size = static_cast<int64_t>(format::dtype_size(a.dtype()));
  const format::TensorSlice whole = format::TensorSlice::whole("", a.shape(), a.dtype());
  int64_t count = 0;
  std::vector<std::byte> first;
  std::vector<std::byte> second;
  const int64_t step = std::max<int64_t>(1, kWindowBytes / size);
  for (int64_t at = 0; at < a.num_elements(); at += step) {
    const int64_t end = std::min(a.num_elements(), at + step);
    for (const format::TensorSlice& box : format::flat_range_boxes(whole, at, end)) {
      first.resize(static_cast<size_t>(box.num_elements() * size));
      second.resize(first.size());
      a.read(files, box.offset, box.extent, a.dtype(), first);
      b.read(files, box.offset, box.extent, b.dtype(), second);
      if (first == second) continue;
      for (size_t i = 0; i < first.size(); i += static_cast<size_t>(size)) {
        if (std::memcmp(&first[i], &second[i], static_cast<size_t>(size)) != 0) ++count;
      }
    }
  }
  return count;
}

}  // namespace longhaul::imports
