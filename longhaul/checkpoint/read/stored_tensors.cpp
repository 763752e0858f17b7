#include "longhaul/checkpoint/read/stored_tensors.h"

#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/state_tensor.h"

namespace longhaul::checkpoint {
namespace {

/// Returns the bytes from one element to the next along each dim of a row-major box.
std::vector<uint64_t> byte_strides(const format::TensorSlice& box, format::DType dtype) {
  std::vector<uint64_t> strides(box.extent.size());
  uint64_t stride = format::dtype_size(dtype);
  for (size_t d = strides.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= static_cast<uint64_t>(box.extent[d]);
  }
  return strides;
}

uint64_t offset_in(const format::TensorSlice& box, const std::vector<uint64_t>& strides,
                   const format::TensorSlice& inner) {
  uint64_t offset = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    offset += static_cast<uint64_t>(inner.offset[d] - box.offset[d]) * strides[d];
  }
  return offset;
}

/// Appends the elements that a stored part and a wanted box have in common, as runs that
/// are contiguous in both.
void append_common(const StoredTensors::Part& part, const format::TensorSlice& box,
                   const format::TensorSlice& both, format::DType dtype, std::byte* out,
                   std::vector<WantedRuns>& result) {
  const format::DType stored = part.slice.dtype;
  const std::vector<uint64_t> from = byte_strides(part.slice, stored);
  const std::vector<uint64_t> to = byte_strides(box, dtype);
  // Inner dims that are whole in both boxes make one run; the dim before them counts the
  // runs.
  size_t outer = both.extent.size();
  uint64_t elements = 1;
  while (outer > 0) {
    --outer;
    elements *= static_cast<uint64_t>(both.extent[outer]);
    if (both.extent[outer] != part.slice.extent[outer] ||
        both.extent[outer] != box.extent[outer]) {
      break;
    }
  }
  WantedRuns wanted;
  wanted.stored = stored;
  wanted.dtype = dtype;
  wanted.source.file = part.file;
  wanted.source.run = elements * format::dtype_size(stored);
  wanted.source.stride = wanted.source.run;
  const uint64_t start = part.begin + offset_in(part.slice, from, both);
  std::byte* const first = out + offset_in(box, to, both);
  size_t listed = outer;  // dims before this one are walked through one by one
  if (outer > 0) {
    listed = outer - 1;
    wanted.source.count = static_cast<uint64_t>(both.extent[listed]);
    wanted.source.stride = from[listed];
    wanted.out_stride = to[listed];
  }
  std::vector<int64_t> index(listed, 0);
  while (true) {
    wanted.source.start = start;
    wanted.out = first;
    for (size_t d = 0; d < listed; ++d) {
      wanted.source.start += static_cast<uint64_t>(index[d]) * from[d];
      wanted.out += static_cast<uint64_t>(index[d]) * to[d];
    }
    result.push_back(wanted);
    size_t d = listed;
    while (d > 0 && ++index[d - 1] == both.extent[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

void check_convertible(const StoredTensors::Part& part, const ReadRequest& request) {
  const format::DType stored = part.slice.dtype;
  if (stored == request.dtype) return;
  if (!format::is_float(stored) || !format::is_float(request.dtype)) {
    fail_input("checkpoint", "{} of '{}' is {}, which does not convert to {}",
               request.kind, request.slice.name, format::dtype_name(stored),
               format::dtype_name(request.dtype));
  }
}

/// Returns whether blocks hold whole elements: elements of a tensor that is converted
/// must not be cut.
bool is_aligned(const StoredTensors::Part& part, format::DType dtype) {
  return part.slice.dtype == dtype ||
         part.begin % format::dtype_size(part.slice.dtype) == 0;
}

/// Copies `length` bytes of a run, from byte `inside` on, to where they belong.
void place(const WantedRuns& wanted, uint64_t run, uint64_t inside, const std::byte* from,
           uint64_t length) {
  std::byte* const to = wanted.out + run * wanted.out_stride;
  if (wanted.stored == wanted.dtype) {
    std::memcpy(to + inside, from, length);
    return;
  }
  const size_t size = format::dtype_size(wanted.stored);
  format::convert_elements(from, wanted.stored,
                           to + inside / size * format::dtype_size(wanted.dtype),
                           wanted.dtype, length / size);
}

}  // namespace

bool append_wanted(const StoredTensors& stored, const ReadRequest& request,
                   std::vector<WantedRuns>& out) {
  const std::vector<StoredTensors::Part> parts =
      stored.parts_of(request.kind, request.slice);
  for (const StoredTensors::Part& part : parts) {
    check_convertible(part, request);
    if (!is_aligned(part, request.dtype)) return false;
  }
  for_each_box(request.slice, request.begin, request.end, request.dtype, request.out,
               [&](const format::TensorSlice& box, std::span<std::byte> to) {
                 int64_t found = 0;
                 for (const StoredTensors::Part& part : parts) {
                   const auto both = format::intersect(part.slice, box);
                   if (!both) continue;
                   append_common(part, box, *both, request.dtype, to.data(), out);
                   found += both->num_elements();
                 }
                 LH_CHECK(found == box.num_elements(), "checkpoint",
                          "{} of {}: {} elements stored", request.kind,
                          format::describe_slice(box), found);
               });
  return true;
}

void scatter(const WantedRuns& wanted, uint64_t begin, std::span<const std::byte> bytes) {
  wanted.source.for_each_part(
      begin, begin + bytes.size(),
      [&](uint64_t run, uint64_t inside, uint64_t offset, uint64_t length) {
        place(wanted, run, inside, bytes.data() + (offset - begin), length);
      });
}

void scatter_packed(const WantedRuns& wanted, uint64_t begin, uint64_t end,
                    std::span<const std::byte> packed) {
  const std::byte* from = packed.data();
  wanted.source.for_each_part(
      begin, end, [&](uint64_t run, uint64_t inside, uint64_t, uint64_t length) {
        place(wanted, run, inside, from, length);
        from += length;
      });
}

}  // namespace longhaul::checkpoint
