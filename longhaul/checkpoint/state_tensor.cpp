#include "longhaul/checkpoint/state_tensor.h"

#include "longhaul/base/error.h"

namespace longhaul::checkpoint {

void append_flat_range(const std::string& kind, const TensorSlice& slice, int64_t begin,
                       int64_t end, std::span<const std::byte> bytes,
                       std::vector<StateTensor>& out) {
  const size_t size = dtype_size(slice.dtype);
  LH_CHECK(bytes.size() == static_cast<size_t>(end - begin) * size, "checkpoint",
           "{} of {}: {} bytes for elements {} to {}", kind, slice.name, bytes.size(),
           begin, end);
  size_t position = 0;
  for (TensorSlice& box : flat_range_boxes(slice, begin, end)) {
    const size_t length = static_cast<size_t>(box.num_elements()) * size;
    out.push_back({kind, std::move(box), bytes.subspan(position, length)});
    position += length;
  }
}

}  // namespace longhaul::checkpoint
