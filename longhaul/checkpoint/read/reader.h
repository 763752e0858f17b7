#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/checkpoint/read/box_table.h"
#include "longhaul/checkpoint/read/stored_tensors.h"
#include "longhaul/checkpoint/state_tensor.h"
#include "longhaul/comm/communicator.h"

namespace longhaul::checkpoint {

/// Returns state.json of a checkpoint, without a look at its tensors. Throws InputError
/// where the manifest or state.json cannot be read or has changed since.
Json read_state(const fs::path& step_dir);

/// Reads a checkpoint into any layout by byte ranges. Every 1 MiB block that is read is
/// compared with its hash. Immutable after open; any thread may read. Data files are
/// opened when something of them is read. The reader keeps the list of boxes and 32 bytes
/// for each block.
class CheckpointReader : public StoredTensors {
 public:
  enum class Tensors {
    Whole,      ///< the boxes of each tensor must tile it
    MayBeParts  ///< only parts of some tensors were written; no box overlaps another
  };
  /// Checks the manifest, every file's presence and size, the hashes of the small files,
  /// and the boxes of each tensor. Throws InputError with path and reason.
  static CheckpointReader open(const fs::path& step_dir,
                               Tensors tensors = Tensors::Whole);
  /// Opens a checkpoint on all ranks of a machine: each small file is read by one of
  /// them, a few at a time, and its text is shared. An error is the same on all ranks of
  /// `node`. Collective.
  static CheckpointReader open(const fs::path& step_dir, comm::Communicator& node,
                               Tensors tensors = Tensors::Whole);
  CheckpointReader(CheckpointReader&&) noexcept;
  ~CheckpointReader() override;

  const Manifest& manifest() const { return manifest_; }
  const fs::path& path() const { return dir_; }
  int64_t step() const { return manifest_.step; }
  /// Returns state.json as the trainer gave it to be saved.
  const Json& state() const { return state_; }
  /// Returns the directory with config.json and the tokenizer files; it may have no
  /// files.
  fs::path hf_dir() const { return dir_ / manifest_.hf_dir; }
  /// Returns the files in hf/, to be carried into an export or the next checkpoint.
  std::vector<CarriedFile> hf_files() const;

  /// Returns the whole tensors of one kind with their stored dtype, by name.
  std::vector<format::TensorSlice> tensors(const std::string& kind) const;
  /// Returns (kind, name) of all tensors, sorted.
  std::vector<std::pair<std::string, std::string>> names() const;
  /// Returns the boxes of a tensor as they were written; none where it is absent.
  std::vector<format::TensorSlice> boxes(const std::string& kind,
                                         const std::string& name) const;

  /// Fills `out` with the elements of `box`, row-major, in dtype `dst`, from whichever
  /// boxes hold them, and converts F32, BF16, F16 and F64 into each other. box.dtype is
  /// not used. Throws InputError when the tensor is absent, has another global shape, or
  /// a block's hash does not match (file, block, offset). For tools; ranks of a run read
  /// together (node_reader.h).
  void read(const std::string& kind, const format::TensorSlice& box, format::DType dst,
            std::span<std::byte> out) const;
  /// Fills `out` with elements [begin, end) of `slice`, for flat buffers; throws as
  /// read() does.
  void read_flat_range(const std::string& kind, const format::TensorSlice& slice,
                       int64_t begin, int64_t end, format::DType dst,
                       std::span<std::byte> out) const;

  /// Opens every data file, so that later reads are of this checkpoint even if it is
  /// deleted before them. Throws InputError when a file is gone.
  void hold_files() const;

  /// Compares every block of every file with its hash; throws InputError at the first
  /// that differs. Returns the bytes that were read.
  uint64_t verify() const;

  std::vector<Part> parts_of(const std::string& kind,
                             const format::TensorSlice& box) const override;
  size_t num_files() const override { return files_.size(); }
  uint64_t file_size(size_t file) const override;
  void read_blocks(size_t file, uint64_t offset,
                   std::span<std::byte> bytes) const override;
  void will_read(size_t file, uint64_t offset, uint64_t bytes) const override;

 private:
  CheckpointReader() = default;
  struct RankFile;
  void load_small_files(comm::Communicator& node);
  void add_rank(const Manifest::RankEntry& entry, std::string_view sidecar);

  fs::path dir_;
  Manifest manifest_;
  Json state_;
  std::vector<std::unique_ptr<RankFile>> files_;
  BoxTable table_;
};

}  // namespace longhaul::checkpoint
