#include "longhaul/checkpoint/read/weights_source.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/backend.h"
#include "longhaul/format/hf_weights.h"
#include "longhaul/format/side_files.h"
#include "longhaul/run/files.h"

namespace longhaul::checkpoint {
namespace {

constexpr size_t kNamesInMessage = 5;

/// The weights of a Hugging Face directory as files of blocks. There are no hashes. A
/// block's bytes are counted from the first byte of the data, so that elements lie whole
/// in a block.
class HfTensors final : public StoredTensors {
 public:
  explicit HfTensors(const format::HfWeights& weights) : weights_(weights) {}
  std::vector<Part> parts_of(const std::string& kind,
                             const format::TensorSlice& box) const override {
    const auto found = weights_.locate(box.name);
    if (kind != kWeight || !found) {
      fail_input("weights", "{}: no {} of '{}'", weights_.dir().string(), kind, box.name);
    }
    if (found->whole.global_shape != box.global_shape) {
      fail_input("weights", "{}: tensor '{}' has shape {}, expected {}",
                 weights_.dir().string(), box.name,
                 format::describe_shape(found->whole.global_shape),
                 format::describe_shape(box.global_shape));
    }
    return {{found->whole, found->file, found->offset}};
  }
  size_t num_files() const override { return weights_.files().size(); }
  uint64_t file_size(size_t file) const override {
    return weights_.files()[file]->data_size();
  }
  void read_blocks(size_t file, uint64_t offset,
                   std::span<std::byte> bytes) const override {
    weights_.files()[file]->read_data(offset, bytes);
  }
  void will_read(size_t file, uint64_t offset, uint64_t bytes) const override {
    weights_.files()[file]->will_read(offset, bytes);
  }

 private:
  const format::HfWeights& weights_;
};

class HfSource final : public WeightsSource {
 public:
  explicit HfSource(ModelSource source)
      : source_(std::move(source)), weights_(format::HfWeights::open(source_.path)) {}
  const ModelSource& source() const override { return source_; }
  std::vector<format::TensorSlice> tensors() const override { return weights_.tensors(); }
  void read(const format::TensorSlice& box, format::DType dst,
            std::span<std::byte> out) const override {
    weights_.read(box, dst, out);
  }
  const StoredTensors& stored() const override { return stored_; }
  fs::path config_path() const override { return source_.path / "config.json"; }
  std::vector<CarriedFile> files_to_carry() const override {
    std::vector<CarriedFile> files;
    for (const std::string& name : format::hf_side_files(source_.path)) {
      files.push_back({name, source_.path / name, {}});
    }
    return files;
  }
  std::vector<std::string> ignored() const override { return weights_.ignored(); }

 private:
  ModelSource source_;
  format::HfWeights weights_;
  HfTensors stored_{weights_};
};

class CheckpointSource final : public WeightsSource {
 public:
  CheckpointSource(ModelSource source, CheckpointReader reader)
      : source_(std::move(source)), reader_(std::move(reader)) {}
  const ModelSource& source() const override { return source_; }
  std::vector<format::TensorSlice> tensors() const override {
    return reader_.tensors(kWeight);
  }
  void read(const format::TensorSlice& box, format::DType dst,
            std::span<std::byte> out) const override {
    reader_.read(kWeight, box, dst, out);
  }
  const StoredTensors& stored() const override { return reader_; }
  fs::path config_path() const override { return reader_.hf_dir() / "config.json"; }
  std::vector<CarriedFile> files_to_carry() const override { return reader_.hf_files(); }
  std::vector<std::string> ignored() const override { return {}; }

 private:
  ModelSource source_;
  CheckpointReader reader_;
};

/// Returns what rank 0 finds at a path, on every rank. Collective.
ModelSource resolve_together(const fs::path& path, comm::Communicator& group) {
  constexpr char kCheckpoint = 'C';
  // The text is not JSON, because a path may hold any byte but NUL.
  const std::string text = comm::on_rank_zero(group, [&] {
    const ModelSource source = resolve_model_source(path);
    const bool checkpoint = source.kind == ModelSource::Kind::Checkpoint;
    return (checkpoint ? kCheckpoint : 'H') + source.path.string() + '\0' + source.note;
  });
  const size_t end = text.find('\0');
  LH_ASSERT(end != std::string::npos, "rank 0 names no source");
  return {text[0] == kCheckpoint ? ModelSource::Kind::Checkpoint
                                 : ModelSource::Kind::HfDirectory,
          text.substr(1, end - 1), text.substr(end + 1)};
}

/// Opens a source that was resolved. Collective.
std::unique_ptr<WeightsSource> open_source(const ModelSource& source,
                                           comm::Communicator& group,
                                           WeightsSource::Files files) {
  if (source.kind == ModelSource::Kind::Checkpoint) {
    CheckpointReader reader = CheckpointReader::open(source.path, group);
    if (files == WeightsSource::Files::Held) {
      comm::on_all_ranks(group, [&] { reader.hold_files(); });
    }
    return std::make_unique<CheckpointSource>(source, std::move(reader));
  }
  std::unique_ptr<WeightsSource> result;
  comm::on_all_ranks(group, [&] { result = std::make_unique<HfSource>(source); });
  return result;
}

}  // namespace

namespace {

/// Returns "; runs that are there: a, b" beside a path that is not there; empty where no
/// run is.
std::string runs_here(const fs::path& missing) {
  const std::string runs = run::runs_below(missing.parent_path());
  return runs.empty() ? "" : "; there are runs" + runs;
}

}  // namespace

ModelSource resolve_model_source(const fs::path& path) {
  if (!is_seen(path)) {
    const bool wanted_none = path == "random" || path == "none" || path == "scratch";
    throw InputError(
        "weights",
        missing_path(path) +
            (wanted_none ? "; leave init.weights out to start from random weights"
                         : runs_here(path)));
  }
  if (!is_seen_directory(path)) {
    fail_input("weights",
               "{}: is a file; give the directory of a Hugging Face model, a checkpoint "
               "or a run",
               path.string());
  }
  using Kind = ModelSource::Kind;
  if (fs::exists(path / run::kManifestFile)) return {Kind::Checkpoint, path, {}};
  if (!format::list_hf_shards(path).empty()) return {Kind::HfDirectory, path, {}};
  std::vector<std::string> skipped;
  if (const auto latest = newest_of(path, &skipped)) {
    std::string note = fmt::format("{}: newest valid checkpoint is {}", path.string(),
                                   latest->path.filename().string());
    for (const std::string& line : skipped) note += "; " + line;
    return {Kind::Checkpoint, latest->path, note};
  }
  if (!skipped.empty()) {
    fail_input("weights", "{}: no valid checkpoint in this run: {}", path.string(),
               skipped.front());
  }
  if (fs::exists(path / run::kConfigFile) ||
      fs::is_directory(path / run::kCheckpointsDir)) {
    fail_input("weights", "{}: this run has no checkpoint yet", path.string());
  }
  return {Kind::HfDirectory, path, {}};  // HfWeights reports what is missing there
}

fs::path model_files_dir(const ModelSource& source) {
  if (source.kind == ModelSource::Kind::HfDirectory) return source.path;
  return source.path / Manifest::read(source.path).hf_dir;
}

std::unique_ptr<WeightsSource> WeightsSource::open(const fs::path& path) {
  return open(path, *comm::self_world("weights"));
}

std::unique_ptr<WeightsSource> WeightsSource::open(const fs::path& path,
                                                   comm::Communicator& group,
                                                   Files files) {
  ModelSource source = resolve_together(path, group);
  while (true) {
    try {
      return open_source(source, group, files);
    } catch (const InputError&) {
      // A run that goes on may have deleted this checkpoint and written newer ones.
      ModelSource newer = resolve_together(path, group);
      if (newer.path == source.path) throw;
      source = std::move(newer);
    }
  }
}

void WeightsSource::read_flat_range(const format::TensorSlice& slice, int64_t begin,
                                    int64_t end, format::DType dst,
                                    std::span<std::byte> out) const {
  for_each_box(slice, begin, end, dst, out,
               [&](const auto& box, auto bytes) { read(box, dst, bytes); });
}

void WeightsSource::check(const std::vector<format::TensorSlice>& expected,
                          const std::vector<std::string>& allowed_extra) const {
  check_tensors(source().path.string(), tensors(), expected, allowed_extra);
}

uint64_t WeightsSource::total_bytes() const {
  uint64_t total = 0;
  for (const format::TensorSlice& tensor : tensors()) total += bytes_in(tensor);
  return total;
}

std::string WeightsSource::describe() const {
  return fmt::format("{}: {}, {}", source().path.string(),
                     counted(std::ssize(tensors()), "tensor"),
                     human_bytes(total_bytes()));
}

void check_tensors(const std::string& what, const std::vector<format::TensorSlice>& found,
                   const std::vector<format::TensorSlice>& expected,
                   const std::vector<std::string>& allowed_extra) {
  std::map<std::string, const format::TensorSlice*> there;
  for (const format::TensorSlice& tensor : found) there[tensor.name] = &tensor;
  std::set<std::string> wanted(allowed_extra.begin(), allowed_extra.end());
  std::vector<std::string> missing;
  std::vector<std::string> shapes;
  for (const format::TensorSlice& tensor : expected) {
    wanted.insert(tensor.name);
    const auto it = there.find(tensor.name);
    if (it == there.end()) {
      missing.push_back(tensor.name + " " + format::describe_shape(tensor.global_shape));
    } else if (it->second->global_shape != tensor.global_shape) {
      shapes.push_back(fmt::format("{}: expected {}, found {}", tensor.name,
                                   format::describe_shape(tensor.global_shape),
                                   format::describe_shape(it->second->global_shape)));
    } else if (!format::is_float(it->second->dtype)) {
      shapes.push_back(fmt::format("{}: its dtype {} is not a float type", tensor.name,
                                   format::dtype_name(it->second->dtype)));
    }
  }
  std::vector<std::string> unexpected;
  for (const auto& [name, tensor] : there) {
    if (!wanted.contains(name)) {
      unexpected.push_back(name + " " + format::describe_shape(tensor->global_shape));
    }
  }
  std::string problem;
  const auto add = [&](const char* title, const std::vector<std::string>& names) {
    if (names.empty()) return;
    problem += fmt::format("{}{} {}: {}", problem.empty() ? "" : "; ", names.size(),
                           title, listed(names, kNamesInMessage));
  };
  add("wrong", shapes);
  add("missing", missing);
  add("unexpected", unexpected);
  if (!problem.empty()) {
    fail_input("weights", "{}: the tensors are not those of the model's config: {}", what,
               problem);
  }
}

}  // namespace longhaul::checkpoint
