#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "longhaul/checkpoint/read/stored_tensors.h"
#include "longhaul/checkpoint/state_tensor.h"
#include "longhaul/comm/communicator.h"

namespace longhaul::checkpoint {

/// What a path stands for where a model is expected.
struct ModelSource {
  enum class Kind { HfDirectory, Checkpoint };
  Kind kind = Kind::HfDirectory;
  fs::path path;  ///< the Hugging Face directory, or the step directory
  std::string
      note;  ///< "runs/a: newest valid checkpoint step_00000005", and what was skipped
};

/// Resolves a Hugging Face directory, a checkpoint, a run directory or a directory of
/// checkpoints (to its newest valid one). Throws InputError that says what was looked for
/// and what was found.
ModelSource resolve_model_source(const fs::path& path);

/// Returns the directory with the source's config.json and tokenizer files.
fs::path model_files_dir(const ModelSource& source);

/// The weights of a model, wherever they lie: [init], generate, eval and export use this.
/// Immutable; any thread may read.
class WeightsSource {
 public:
  virtual ~WeightsSource() = default;
  /// Resolves a path and opens what it stands for. Checks structure and sizes; reads no
  /// tensor.
  static std::unique_ptr<WeightsSource> open(const fs::path& path);
  enum class Files {
    Lazy,  ///< files are opened when they are read
    /// All files are opened at once. So what is read stays the same, even if a run
    /// deletes its checkpoint before all of it was read.
    Held
  };
  /// Opens the same source on all ranks of a group: rank 0 resolves the path, and an
  /// error is the same on all ranks. If a run deletes its newest checkpoint during the
  /// call, opens a newer one. Collective.
  static std::unique_ptr<WeightsSource> open(const fs::path& path,
                                             comm::Communicator& group,
                                             Files files = Files::Lazy);

  virtual const ModelSource& source() const = 0;
  /// Returns the whole tensors with their stored dtypes, in the order of their names.
  virtual std::vector<format::TensorSlice> tensors() const = 0;
  /// Fills `out` with the elements of `box` (row-major in its extent), converted to
  /// `dst`. Throws InputError when the tensor is absent or its global shape differs.
  virtual void read(const format::TensorSlice& box, format::DType dst,
                    std::span<std::byte> out) const = 0;
  /// Returns the files behind the tensors, for ranks that read together (node_reader.h).
  /// The tensors' kind is kWeight. Lives as long as the source.
  virtual const StoredTensors& stored() const = 0;
  /// Returns false where stored() does not have the tensor in the form in which read()
  /// gives it.
  virtual bool as_stored(const std::string& /*name*/) const { return true; }
  /// Returns a source with the tensors that the files hold, under the names in the files.
  virtual const WeightsSource& files() const { return *this; }
  /// Returns the names of the tensors of files() from which a tensor is made.
  virtual std::vector<std::string> origins(const std::string& name) const {
    return {name};
  }
  /// Fills `out` with elements [begin, end) of `slice`, for flat buffers; throws as
  /// read() does.
  void read_flat_range(const format::TensorSlice& slice, int64_t begin, int64_t end,
                       format::DType dst, std::span<std::byte> out) const;
  /// Compares names and global shapes with `expected`. Throws InputError that lists
  /// missing, unexpected and misshapen tensors with both shapes. Names in `allowed_extra`
  /// may be there too (lm_head.weight of a tied model).
  void check(const std::vector<format::TensorSlice>& expected,
             const std::vector<std::string>& allowed_extra = {}) const;

  /// Returns the path of the model's config.json.
  virtual fs::path config_path() const = 0;
  /// Returns the side files (format/side_files.h) that go with the weights.
  virtual std::vector<CarriedFile> files_to_carry() const = 0;
  /// Returns what is passed over by rule and stays behind, one line each: other sets of
  /// weights, tensors that no index names, code, folders.
  virtual std::vector<std::string> ignored() const = 0;
  /// Returns path, number of tensors and bytes in one line for the log.
  std::string describe() const;
  /// Returns the stored bytes of all tensors.
  uint64_t total_bytes() const;
};

/// Compares the tensors that were found with the expected ones, for all sources; throws
/// as WeightsSource::check does.
void check_tensors(const std::string& what, const std::vector<format::TensorSlice>& found,
                   const std::vector<format::TensorSlice>& expected,
                   const std::vector<std::string>& allowed_extra);

}  // namespace longhaul::checkpoint
