
#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/format/tensor_slice.h"

namespace longhaul::format {
namespace {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

template <typename Write>
void convert_to(const std::byte* src, DType src_dtype, size_t count, Write write) {
  switch (src_dtype) {
    case DType::F32:
      for (size_t i = 0; i < count; ++i) write(i, load<float>(src + 4 * i));
      return;
    case DType::BF16:
      for (size_t i = 0; i < count; ++i)
        write(i, bf16_to_float(load<uint16_t>(src + 2 * i)));
      return;
    case DType::F16:
      for (size_t i = 0; i < count; ++i)
        write(i, f16_to_float(load<uint16_t>(src + 2 * i)));
      return;
    default:
      for (size_t i = 0; i < count; ++i) write(i, load<double>(src + 8 * i));
      return;
  }
}

// Rounds fp64 to fp32 towards odd. A conversion to a 16-bit type through a nearest fp32
// would round twice; rounding to odd keeps what the second rounding must know.
float to_float_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || nearest != nearest) return nearest;
  auto bits = __builtin_bit_cast(uint32_t, nearest);
  const bool away = (value < 0) ? static_cast<double>(nearest) < value
                                : static_cast<double>(nearest) > value;
  if (away) --bits;  // towards zero
  return __builtin_bit_cast(float, bits | 1U);
}
inline float narrow(float value) { return value; }
inline float narrow(double value) { return to_float_odd(value); }

// Returns row-major strides in elements.
std::vector<int64_t> strides_of(const std::vector<int64_t>& extent) {
  std::vector<int64_t> strides(extent.size(), 1);
  for (size_t d = extent.size(); d-- > 1;) strides[d - 1] = strides[d] * extent[d];
  return strides;
}

// Returns the flat index of the first element of `inner` in the buffer of `outer`.
int64_t flat_start(const TensorSlice& outer, const TensorSlice& inner) {
  const std::vector<int64_t> strides = strides_of(outer.extent);
  int64_t start = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    start += (inner.offset[d] - outer.offset[d]) * strides[d];
  }
  return start;
}

// Returns the number of elements from the first to the last element of `inner` in the
// buffer of `outer`.
int64_t flat_span(const TensorSlice& outer, const TensorSlice& inner) {
  const std::vector<int64_t> strides = strides_of(outer.extent);
  int64_t last = 0;
  for (size_t d = 0; d < strides.size(); ++d) last += (inner.extent[d] - 1) * strides[d];
  return last + 1;
}

// Copies `part`, which both boxes hold. `src` points at the first element of `part`.
void copy_part(const TensorSlice& part, const TensorSlice& src_box, const std::byte* src,
               const TensorSlice& dst_box, std::byte* dst) {
  const size_t rank = part.extent.size();
  const std::vector<int64_t> src_strides = strides_of(src_box.extent);
  const std::vector<int64_t> dst_strides = strides_of(dst_box.extent);
  // Inner dims that are whole in both buffers are copied as one range.
  size_t inner = rank;
  int64_t run = 1;
  while (inner > 0) {
    --inner;
    run *= part.extent[inner];
    if (part.extent[inner] != src_box.extent[inner] ||
        part.extent[inner] != dst_box.extent[inner]) {
      break;
    }
  }
  std::vector<int64_t> index(inner, 0);
  const size_t src_size = dtype_size(src_box.dtype);
  const size_t dst_size = dtype_size(dst_box.dtype);
  while (true) {
    int64_t from = 0;
    int64_t to = 0;
    for (size_t d = 0; d < inner; ++d) {
      from += index[d] * src_strides[d];
      to += index[d] * dst_strides[d];
    }
    convert_elements(src + static_cast<size_t>(from) * src_size, src_box.dtype,
                     dst + static_cast<size_t>(to) * dst_size, dst_box.dtype,
                     static_cast<size_t>(run));
    size_t d = inner;
    while (d > 0 && ++index[d - 1] == part.extent[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

void check_buffer(const TensorSlice& box, size_t bytes) {
  box.check();
  const size_t wanted = static_cast<size_t>(box.num_elements()) * dtype_size(box.dtype);
  LH_CHECK(bytes == wanted, "tensor slice", "{}: a buffer of {} bytes, {} needed",
           describe_slice(box), bytes, wanted);
}

struct BoxReader {
  const ReadRange& read;
  const TensorSlice& stored;
  const TensorSlice& dst;
  std::byte* out;
  uint64_t window;
  std::vector<std::byte> buffer;

  // Halves the box until the bytes from its first to its last element fit the window.
  void visit(const TensorSlice& part) {
    const size_t size = dtype_size(stored.dtype);
    const uint64_t bytes = static_cast<uint64_t>(flat_span(stored, part)) * size;
    size_t dim = 0;
    while (dim < part.extent.size() && part.extent[dim] == 1) ++dim;
    if (bytes > window && dim < part.extent.size()) {
      TensorSlice half = part;
      half.extent[dim] = part.extent[dim] / 2;
      visit(half);
      half.offset[dim] += half.extent[dim];
      half.extent[dim] = part.extent[dim] - half.extent[dim];
      visit(half);
      return;
    }
    const auto start = static_cast<uint64_t>(flat_start(stored, part)) * size;
    std::byte* to =
        out + static_cast<size_t>(flat_start(dst, part)) * dtype_size(dst.dtype);
    // Elements that are contiguous in both boxes and have one dtype are read directly
    // into the target.
    if (flat_span(stored, part) == part.num_elements() && stored.dtype == dst.dtype &&
        flat_span(dst, part) == part.num_elements()) {
      read(start, {to, bytes});
      return;
    }
    buffer.resize(bytes);
    read(start, buffer);
    copy_part(part, stored, buffer.data(), dst, to);
  }
};

}  // namespace

bool is_float(DType dtype) {
  return dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F16 ||
         dtype == DType::F64;
}

void convert_elements(const std::byte* src, DType src_dtype, std::byte* dst,
                      DType dst_dtype, size_t count) {
  if (src_dtype == dst_dtype) {
    if (count > 0) std::memcpy(dst, src, count * dtype_size(src_dtype));
    return;
  }
  LH_CHECK(is_float(src_dtype) && is_float(dst_dtype), "dtype",
           "{} does not convert to {}", dtype_name(src_dtype), dtype_name(dst_dtype));
  switch (dst_dtype) {
    case DType::F32:
      convert_to(src, src_dtype, count, [dst](size_t i, auto value) {
        store(dst + 4 * i, static_cast<float>(value));
      });
      return;
    case DType::BF16:
      convert_to(src, src_dtype, count, [dst](size_t i, auto value) {
        store(dst + 2 * i, float_to_bf16(narrow(value)));
      });
      return;
    case DType::F16:
      convert_to(src, src_dtype, count, [dst](size_t i, auto value) {
        store(dst + 2 * i, float_to_f16(narrow(value)));
      });
      return;
    default:
      convert_to(src, src_dtype, count, [dst](size_t i, auto value) {
        store(dst + 8 * i, static_cast<double>(value));
      });
      return;
  }
}

int64_t copy_box(const TensorSlice& src, std::span<const std::byte> src_bytes,
                 const TensorSlice& dst, std::span<std::byte> dst_bytes) {
  check_buffer(src, src_bytes.size());
  check_buffer(dst, dst_bytes.size());
  const std::optional<TensorSlice> part = intersect(src, dst);
  if (!part || part->num_elements() == 0) return 0;
  const auto from = static_cast<size_t>(flat_start(src, *part)) * dtype_size(src.dtype);
  const auto to = static_cast<size_t>(flat_start(dst, *part)) * dtype_size(dst.dtype);
  copy_part(*part, src, src_bytes.data() + from, dst, dst_bytes.data() + to);
  return part->num_elements();
}

int64_t read_box(const ReadRange& read, const TensorSlice& stored, const TensorSlice& dst,
                 std::span<std::byte> dst_bytes, uint64_t window_bytes) {
  stored.check();
  check_buffer(dst, dst_bytes.size());
  const std::optional<TensorSlice> part = intersect(stored, dst);
  if (!part || part->num_elements() == 0) return 0;
  BoxReader reader{read, stored, dst, dst_bytes.data(), window_bytes, {}};
  reader.visit(*part);
  return part->num_elements();
}

}  // namespace longhaul::format
