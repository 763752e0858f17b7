#include "longhaul/imports/to_checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/hf/hf_forms.h"
#include "longhaul/checkpoint/read/finite_values.h"
#include "longhaul/checkpoint/write/commit_protocol.h"
#include "longhaul/imports/foreign_source.h"

namespace longhaul::imports {
namespace {

// Bytes that are held at once, which are also the size of the files. Each file counts as
// the file of a rank.
constexpr int64_t kFileBytes = int64_t{256} << 20;

class Writer {
 public:
  Writer(const ForeignModel& model, const ToCheckpointOptions& options,
         checkpoint::SaveTarget target)
      : model_(model),
        options_(options),
        target_(std::move(target)),
        fewer_updates_(fewer_updates_of_parameters(model)) {}

  uint64_t run() {
    const auto& weights = model_.masters.empty() ? model_.weights : model_.masters;
    const std::pair<const char*, checkpoint::SharedSource> kinds[] = {
        {checkpoint::kWeight, parameters(weights)},
        {checkpoint::kExpAvg, parameters(model_.exp_avg)},
        {checkpoint::kExpAvgSq, parameters(model_.exp_avg_sq)}};
    for (const auto& [kind, source] : kinds) {
      for (const format::TensorSlice& tensor : source->tensors()) {
        total_ += static_cast<uint64_t>(tensor.num_elements()) *
                  format::dtype_size(format::DType::F32);
      }
    }
    for (const auto& [kind, source] : kinds) {
      for (const format::TensorSlice& tensor : source->tensors())
        add(kind, tensor, *source);
    }
    flush();
    checkpoint::CommitContent content;
    content.build = options_.build;
    content.layout = {{"imported_from", model_.what}};
    content.state = options_.state;
    content.hf = ForeignSource(model_).files_to_carry();
    content.ranks = files_;
    return checkpoint::commit_step(target_, content);
  }

 private:
  checkpoint::SharedSource parameters(
      const std::map<std::string, Mosaic>& tensors) const {
    return checkpoint::as_parameters(std::make_shared<ForeignSource>(model_, tensors),
                                     model_.config.model->description);
  }

  // Adds a tensor in fp32, which holds bf16 exactly.
  void add(const char* kind, const format::TensorSlice& tensor,
           const checkpoint::WeightsSource& source) {
    const format::TensorSlice whole =
        format::TensorSlice::whole(tensor.name, tensor.global_shape, format::DType::F32);
    for (int64_t begin = 0; begin < whole.num_elements();) {
      const int64_t room = std::max<int64_t>(1, (kFileBytes - held_) / 4);
      const int64_t end = std::min(whole.num_elements(), begin + room);
      std::vector<std::byte>& buffer =
          buffers_.emplace_back(static_cast<size_t>(end - begin) * 4);
      source.read_flat_range(whole, begin, end, format::DType::F32, buffer);
      checkpoint::check_finite(source, whole, begin, format::DType::F32, buffer);
      if (updates_of(whole.name) == 0) check_no_update(kind, whole.name, buffer);
      checkpoint::append_flat_range(kind, whole, begin, end, buffer, tensors_);
      held_ += static_cast<int64_t>(buffer.size());
      begin = end;
      if (held_ >= kFileBytes) flush();
    }
  }

  int64_t updates_of(const std::string& name) const {
    const auto found = fewer_updates_.find(name);
    return found == fewer_updates_.end() ? model_.updates.value_or(0) : found->second;
  }

  /// Throws InputError for a parameter with 0 updates whose moment is not 0. The bias
  /// correction would make its next update many times too large.
  void check_no_update(const std::string& kind, const std::string& name,
                       std::span<const std::byte> values) const {
    if (kind == checkpoint::kWeight) return;
    // A moment of -0 counts as 0.
    const std::span floats(reinterpret_cast<const float*>(values.data()),
                           values.size() / sizeof(float));
    if (std::ranges::all_of(floats, [](float x) { return x == 0.0F; })) return;
    fail_input("import",
               "{}: the optimizer counts 0 updates, but {} of {} is not 0; import the "
               "weights alone (without --format checkpoint)",
               model_.path.string(), kind, name);
  }

  void flush() {
    if (tensors_.empty()) return;
    checkpoint::write_rank(target_, files_++, tensors_);
    done_ += static_cast<uint64_t>(held_);
    if (options_.progress) options_.progress(done_, total_);
    tensors_.clear();
    buffers_.clear();
    held_ = 0;
  }

  const ForeignModel& model_;
  const ToCheckpointOptions& options_;
  checkpoint::SaveTarget target_;
  std::map<std::string, int64_t> fewer_updates_;  ///< by parameter
  std::vector<checkpoint::StateTensor> tensors_;
  std::vector<std::vector<std::byte>> buffers_;
  int64_t held_ = 0;
  int files_ = 0;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

}  // namespace

uint64_t write_foreign_checkpoint(const ForeignModel& model, const fs::path& out,
                                  const ToCheckpointOptions& options) {
  LH_CHECK(!model.exp_avg.empty() && !model.exp_avg_sq.empty(), "import",
           "a checkpoint without optimizer state");
  const fs::path target = fs::absolute(out).lexically_normal();
  const fs::path final = target.filename().empty() ? target.parent_path() : target;
  if (is_seen(final) && !(fs::is_directory(final) && fs::is_empty(final))) {
    fail_input(
        "import",
        "{}: exists and is not empty; give a new directory, or remove this one first",
        out.string());
  }
  const ScratchPath temporary(final.string() + fmt::format(".tmp.{}", ::getpid()));
  fs::create_directories(temporary.path());
  const uint64_t bytes =
      Writer(model, options, checkpoint::prepare_step(temporary.path(), options.step, 1))
          .run();
  fs::rename(temporary.path(), final);
  sync_directory(final.parent_path());
  return bytes;
}

}  // namespace longhaul::imports
