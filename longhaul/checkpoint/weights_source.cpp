#include "longhaul/checkpoint/weights_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/checkpoint/reader.h"
#include "longhaul/format/hf_weights.h"

namespace longhaul::checkpoint {
namespace {

constexpr size_t kNamesInMessage = 5;

class HfSource final : public WeightsSource {
 public:
  explicit HfSource(ModelSource source)
      : source_(std::move(source)), weights_(HfWeights::open(source_.path)) {}
  const ModelSource& source() const override { return source_; }
  std::vector<TensorSlice> tensors() const override { return weights_.tensors(); }
  void read(const TensorSlice& box, DType dst, std::span<std::byte> out) const override {
    weights_.read(box, dst, out);
  }
  fs::path config_path() const override { return source_.path / "config.json"; }
  std::vector<CarriedFile> files_to_carry() const override {
    std::vector<CarriedFile> files;
    for (const std::string& name : hf_side_files(source_.path)) {
      files.push_back({name, source_.path / name, {}});
    }
    return files;
  }
  std::vector<std::string> ignored() const override { return weights_.ignored(); }

 private:
  ModelSource source_;
  HfWeights weights_;
};

class CheckpointSource final : public WeightsSource {
 public:
  explicit CheckpointSource(ModelSource source)
      : source_(std::move(source)), reader_(CheckpointReader::open(source_.path)) {}
  const ModelSource& source() const override { return source_; }
  std::vector<TensorSlice> tensors() const override { return reader_.tensors(kWeight); }
  void read(const TensorSlice& box, DType dst, std::span<std::byte> out) const override {
    reader_.read(kWeight, box, dst, out);
  }
  fs::path config_path() const override { return reader_.hf_dir() / "config.json"; }
  std::vector<CarriedFile> files_to_carry() const override { return reader_.hf_files(); }
  std::vector<std::string> ignored() const override { return {}; }

 private:
  ModelSource source_;
  CheckpointReader reader_;
};

// Up to five names, and how many there are.
std::string list_names(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesInMessage); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kNamesInMessage)
    text += fmt::format(" and {} more", names.size() - 5);
  return text;
}

}  // namespace

ModelSource resolve_model_source(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw InputError("weights", path.string() + ": no such file or directory");
  }
  if (!fs::is_directory(path, error)) {
    throw InputError("weights", path.string() +
                                    ": is a file; give the directory of a Hugging Face "
                                    "model, a checkpoint or a run");
  }
  using Kind = ModelSource::Kind;
  if (fs::exists(path / kManifestName)) return {Kind::Checkpoint, path, {}};
  if (!list_hf_shards(path).empty()) return {Kind::HfDirectory, path, {}};
  std::vector<std::string> skipped;
  for (const fs::path& dir : {checkpoints_dir_of(path), path}) {
    const auto latest = find_latest(dir, &skipped);
    if (!latest) continue;
    std::string note = fmt::format("{}: newest valid checkpoint is {}", path.string(),
                                   latest->path.filename().string());
    for (const std::string& line : skipped) note += "; " + line;
    return {Kind::Checkpoint, latest->path, note};
  }
  if (!skipped.empty()) {
    throw InputError("weights", fmt::format("{}: no valid checkpoint in this run: {}",
                                            path.string(), skipped.front()));
  }
  if (fs::exists(path / "config.toml") || fs::is_directory(path / "checkpoints")) {
    throw InputError("weights", path.string() + ": this run has no checkpoint yet");
  }
  return {Kind::HfDirectory, path, {}};  // HfWeights says what is missing there
}

fs::path model_files_dir(const ModelSource& source) {
  if (source.kind == ModelSource::Kind::HfDirectory) return source.path;
  return source.path / Manifest::read(source.path).hf_dir;
}

std::unique_ptr<WeightsSource> WeightsSource::open(const fs::path& path) {
  ModelSource source = resolve_model_source(path);
  if (source.kind == ModelSource::Kind::Checkpoint) {
    return std::make_unique<CheckpointSource>(std::move(source));
  }
  return std::make_unique<HfSource>(std::move(source));
}

bool WeightsSource::has(const std::string& name) const {
  for (const TensorSlice& tensor : tensors()) {
    if (tensor.name == name) return true;
  }
  return false;
}

void WeightsSource::read_flat_range(const TensorSlice& slice, int64_t begin, int64_t end,
                                    DType dst, std::span<std::byte> out) const {
  LH_CHECK(out.size() == static_cast<size_t>(end - begin) * dtype_size(dst), "weights",
           "{}: {} bytes for elements {} to {}", slice.name, out.size(), begin, end);
  size_t position = 0;
  for (const TensorSlice& box : flat_range_boxes(slice, begin, end)) {
    const size_t bytes = static_cast<size_t>(box.num_elements()) * dtype_size(dst);
    read(box, dst, out.subspan(position, bytes));
    position += bytes;
  }
}

void WeightsSource::check(const std::vector<TensorSlice>& expected,
                          const std::vector<std::string>& allowed_extra) const {
  check_tensors(source().path.string(), tensors(), expected, allowed_extra);
}

uint64_t WeightsSource::total_bytes() const {
  uint64_t total = 0;
  for (const TensorSlice& tensor : tensors()) {
    total += static_cast<uint64_t>(tensor.num_elements()) * dtype_size(tensor.dtype);
  }
  return total;
}

std::string WeightsSource::describe() const {
  return fmt::format("{}: {} tensors, {}", source().path.string(), tensors().size(),
                     human_bytes(static_cast<double>(total_bytes())));
}

void check_tensors(const std::string& what, const std::vector<TensorSlice>& found,
                   const std::vector<TensorSlice>& expected,
                   const std::vector<std::string>& allowed_extra) {
  std::map<std::string, const TensorSlice*> there;
  for (const TensorSlice& tensor : found) there[tensor.name] = &tensor;
  std::set<std::string> wanted(allowed_extra.begin(), allowed_extra.end());
  std::vector<std::string> missing;
  std::vector<std::string> shapes;
  for (const TensorSlice& tensor : expected) {
    wanted.insert(tensor.name);
    const auto it = there.find(tensor.name);
    if (it == there.end()) {
      missing.push_back(tensor.name + " " + describe_shape(tensor.global_shape));
    } else if (it->second->global_shape != tensor.global_shape) {
      shapes.push_back(fmt::format("{}: expected {}, found {}", tensor.name,
                                   describe_shape(tensor.global_shape),
                                   describe_shape(it->second->global_shape)));
    } else if (!is_float(it->second->dtype)) {
      shapes.push_back(fmt::format("{}: dtype {}, which is no float type", tensor.name,
                                   dtype_name(it->second->dtype)));
    }
  }
  std::vector<std::string> unexpected;
  for (const auto& [name, tensor] : there) {
    if (!wanted.contains(name)) {
      unexpected.push_back(name + " " + describe_shape(tensor->global_shape));
    }
  }
  std::string problem;
  const auto add = [&](const char* title, const std::vector<std::string>& names) {
    if (names.empty()) return;
    problem += fmt::format("{}{} {}: {}", problem.empty() ? "" : "; ", names.size(),
                           title, list_names(names));
  };
  add("wrong", shapes);
  add("missing", missing);
  add("unexpected", unexpected);
  if (!problem.empty()) {
    throw InputError("weights",
                     fmt::format("{}: the tensors are not those of the model's "
                                 "config: {}",
                                 what, problem));
  }
}

}  // namespace longhaul::checkpoint
