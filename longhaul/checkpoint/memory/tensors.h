#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "longhaul/checkpoint/memory/part.h"
#include "longhaul/checkpoint/read/box_table.h"
#include "longhaul/checkpoint/read/stored_tensors.h"

namespace longhaul::checkpoint {

/// One step of a run that machines hold in memory; the same on all ranks.
struct MemoryStep {
  struct Part {
    std::string name;  ///< file name in the directory of each machine that has the part
    std::vector<int> readers;  ///< ranks of machines that have the part whole, ascending
    uint64_t data_bytes = 0;
    std::string text;
  };
  int attempt = 0;
  int64_t step = 0;
  int machines = 0;  ///< number of machines that have parts of the step
  std::string state;
  std::vector<Part> parts;  ///< by the rank whose state each part holds
};

/// Reads a step from memory into any layout. Only some ranks can read a part; what the
/// other ranks want of the part is passed on (node_reader.h). The group that reads has to
/// be the group that called find_in_memory(), the whole world. That call has compared all
/// blocks with their hashes; they are not compared again.
class MemoryTensors : public StoredTensors {
 public:
  /// Throws InputError, the same on all ranks, where the parts do not make whole tensors.
  MemoryTensors(const MemoryStep& step, const fs::path& dir);

  std::vector<Part> parts_of(const std::string& kind,
                             const format::TensorSlice& box) const override;
  size_t num_files() const override { return files_.size(); }
  uint64_t file_size(size_t file) const override;
  std::vector<int> readers_of(size_t file) const override;
  void read_blocks(size_t file, uint64_t offset,
                   std::span<std::byte> bytes) const override;
  void will_read(size_t, uint64_t, uint64_t) const override {}

 private:
  struct PartFile {
    fs::path path;
    uint64_t bytes = 0;
    std::vector<int> readers;
    mutable std::once_flag opened;
    mutable PartReader part;
  };
  std::string what_;
  std::vector<std::unique_ptr<PartFile>> files_;
  BoxTable table_;
};

}  // namespace longhaul::checkpoint
