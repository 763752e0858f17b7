#include "longhaul/checkpoint/memory/tensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul::checkpoint {

MemoryTensors::MemoryTensors(const MemoryStep& step, const fs::path& dir)
    : what_(fmt::format("step {} in memory", step.step)) {
  for (const MemoryStep::Part& part : step.parts) {
    auto file = std::make_unique<PartFile>();
    file->path = dir / part.name;
    file->bytes = part.data_bytes;
    file->readers = part.readers;
    const std::string what = what_ + ", " + part.name;
    for (StoredBox& box : parse_part_text(part.text, part.data_bytes, what)) {
      table_.add(files_.size(), std::move(box), what);
    }
    files_.push_back(std::move(file));
  }
  table_.settle(true, what_);
}

std::vector<StoredTensors::Part> MemoryTensors::parts_of(
    const std::string& kind, const format::TensorSlice& box) const {
  return table_.parts_of(kind, box, what_);
}

uint64_t MemoryTensors::file_size(size_t file) const { return files_[file]->bytes; }

std::vector<int> MemoryTensors::readers_of(size_t file) const {
  return files_[file]->readers;
}

void MemoryTensors::read_blocks(size_t file, uint64_t offset,
                                std::span<std::byte> bytes) const {
  const PartFile& f = *files_[file];
  std::call_once(f.opened, [&] { f.part = PartReader::open(f.path); });
  const std::span<const std::byte> data = f.part.data();
  LH_CHECK(offset <= data.size() && bytes.size() <= data.size() - offset, "memory",
           "{}: bytes {} to {} of {}", f.path.string(), offset, offset + bytes.size(),
           data.size());
  std::ranges::copy(data.subspan(offset, bytes.size()), bytes.begin());
}

}  // namespace longhaul::checkpoint
