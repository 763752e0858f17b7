#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "longhaul/checkpoint/read/stored_tensors.h"
#include "longhaul/checkpoint/state_tensor.h"
#include "longhaul/comm/communicator.h"

namespace longhaul::checkpoint {

/// What a path stands for where a model is asked for.
struct ModelSource {
  enum class Kind { HfDirectory, Checkpoint };
  Kind kind = Kind::HfDirectory;
  fs::path path;     ///< the HF directory or the step directory
  std::string note;  ///< "runs/a: newest valid checkpoint step_00000005", skipped ones
};

/// An HF directory, a checkpoint, or a run directory or directory of checkpoints (the
/// newest valid one). InputError says what was looked for and what was found.
ModelSource resolve_model_source(const fs::path& path);

/// The directory with the source's config.json and tokenizer files.
fs::path model_files_dir(const ModelSource& source);

/// The weights of a model, wherever they lie: [init], generate, eval and export use this.
/// Immutable; any thread may read.
class WeightsSource {
 public:
  virtual ~WeightsSource() = default;
  /// resolve_model_source and open. Checks structure and sizes; reads no tensor.
  static std::unique_ptr<WeightsSource> open(const fs::path& path);
  enum class Files {
    Lazy,  ///< opened when they are read
    Held   ///< all opened now: what is read stays what it is now, even if the run goes on
           ///< and deletes its checkpoint meanwhile
  };
  /// The same for all ranks of a group: rank 0 resolves the path, and an error is the
  /// same on all of them. Of a run whose newest checkpoint goes away meanwhile, the one
  /// after it. Collective.
  static std::unique_ptr<WeightsSource> open(const fs::path& path,
                                             comm::Communicator& group,
                                             Files files = Files::Lazy);

  virtual const ModelSource& source() const = 0;
  /// Whole tensors with their stored dtypes, in the order of their names.
  virtual std::vector<TensorSlice> tensors() const = 0;
  /// Fills `out` with the elements of `box` (row-major in its extent), converted to
  /// `dst`. InputError when the tensor is absent or its global shape differs.
  virtual void read(const TensorSlice& box, DType dst,
                    std::span<std::byte> out) const = 0;
  /// The files behind them, for ranks that read together (node_reader.h). Their kind is
  /// kWeight. Lives as long as the source.
  virtual const StoredTensors& stored() const = 0;
  /// False where `stored` has not the tensor in the form that read() gives it.
  virtual bool as_stored(const std::string& /*name*/) const { return true; }
  /// The source with the tensors of the files, under their names there.
  virtual const WeightsSource& files() const { return *this; }
  /// The names of the tensors of files() that a tensor is made of.
  virtual std::vector<std::string> origins(const std::string& name) const {
    return {name};
  }
  /// The same for elements [begin, end) of `slice`, for flat buffers.
  void read_flat_range(const TensorSlice& slice, int64_t begin, int64_t end, DType dst,
                       std::span<std::byte> out) const;
  /// Names and global shapes must be these exactly; InputError lists missing, unexpected
  /// and misshapen tensors with both shapes. Names in `allowed_extra` may also be there
  /// (lm_head.weight of a tied model).
  void check(const std::vector<TensorSlice>& expected,
             const std::vector<std::string>& allowed_extra = {}) const;

  /// config.json of the model.
  virtual fs::path config_path() const = 0;
  /// The side files (format/side_files.h), to be carried along.
  virtual std::vector<CarriedFile> files_to_carry() const = 0;
  /// What is passed over by rule and stays behind: other sets of weights, tensors that no
  /// index names, code, folders; one line each.
  virtual std::vector<std::string> ignored() const = 0;
  /// Path, number of tensors, bytes: one line for the log.
  std::string describe() const;
  /// Stored bytes of all tensors.
  uint64_t total_bytes() const;
};

/// Shared by the sources: throws as WeightsSource::check does.
void check_tensors(const std::string& what, const std::vector<TensorSlice>& found,
                   const std::vector<TensorSlice>& expected,
                   const std::vector<std::string>& allowed_extra);

}  // namespace longhaul::checkpoint
