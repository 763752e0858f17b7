#include "longhaul/checkpoint/hf/hf_export.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/checkpoint/hf/adapted_model.h"
#include "longhaul/checkpoint/hf/hf_forms.h"
#include "longhaul/checkpoint/hf/peft.h"
#include "longhaul/checkpoint/read/finite_values.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/backend.h"
#include "longhaul/families/model_config.h"
#include "longhaul/format/safetensors.h"
#include "longhaul/system/cpus.h"
#include "longhaul/system/run_on_threads.h"
#include "longhaul/system/signals.h"

namespace longhaul::checkpoint {
namespace {

// A tensor is read and written in parts of about this many bytes.
constexpr int64_t kPartBytes = int64_t{16} << 20;
constexpr const char* kIndexName = "model.safetensors.index.json";

const char* hf_dtype_name(format::DType dtype) {
  switch (dtype) {
    case format::DType::BF16:
      return "bfloat16";
    case format::DType::F16:
      return "float16";
    case format::DType::F64:
      return "float64";
    default:
      return "float32";
  }
}

struct Shard {
  std::vector<format::TensorSlice> tensors;
  uint64_t bytes = 0;
};

// Deals the tensors to shards in the order of their names; a tensor larger than a shard
// gets a shard of its own.
std::vector<Shard> make_shards(const std::vector<format::TensorSlice>& tensors,
                               uint64_t limit) {
  std::vector<Shard> shards(1);
  for (const format::TensorSlice& tensor : tensors) {
    const uint64_t bytes = bytes_in(tensor);
    if (shards.back().bytes > 0 && shards.back().bytes + bytes > limit) {
      shards.emplace_back();
    }
    shards.back().tensors.push_back(tensor);
    shards.back().bytes += bytes;
  }
  // Wide dtypes come first, so that every element is aligned.
  for (Shard& shard : shards) {
    std::stable_sort(shard.tensors.begin(), shard.tensors.end(),
                     [](const format::TensorSlice& a, const format::TensorSlice& b) {
                       return format::dtype_size(a.dtype) > format::dtype_size(b.dtype);
                     });
  }
  return shards;
}

// Returns the dtype of most elements, which config.json names.
format::DType main_dtype(const std::vector<format::TensorSlice>& tensors) {
  std::map<format::DType, int64_t> counts;
  for (const format::TensorSlice& tensor : tensors)
    counts[tensor.dtype] += tensor.num_elements();
  const auto most = std::ranges::max_element(
      counts, {}, [](const auto& counted) { return counted.second; });
  return most == counts.end() ? format::DType::F32 : most->first;
}

std::string config_text(const WeightsSource& source, format::DType dtype,
                        bool any_family) {
  const fs::path path = source.config_path();
  if (!any_family) {
    return to_hf_config_json(load_model_config(path), hf_dtype_name(dtype));
  }
  OrderedJson json =
      parse_ordered_json(read_text(path, uint64_t{1} << 24), path.string());
  if (!json.is_object())
    fail_input("export", "{}: the file is not a JSON object", path.string());
  json.erase("transformers_weights");
  json[json.contains("dtype") ? "dtype" : "torch_dtype"] = hf_dtype_name(dtype);
  return json_text(json, 2) + "\n";
}

/// Returns the files that go with the weights, with their texts. The texts are read at
/// once, since the source may change or vanish during the export.
std::vector<CarriedFile> read_side_files(const WeightsSource& source, format::DType dtype,
                                         bool any_family) {
  std::vector<CarriedFile> files = source.files_to_carry();
  std::erase_if(files, [](const auto& file) { return file.name == "config.json"; });
  for (CarriedFile& file : files) {
    if (!file.source.empty()) file.text = read_text(file.source);
  }
  if (holds_adapter(source)) return files;
  if (!fs::exists(source.config_path())) {
    fail_input("export", "{}: there is no such file; a model needs its config.json",
               source.config_path().string());
  }
  files.push_back({"config.json", {}, config_text(source, dtype, any_family)});
  return files;
}

std::string shard_name(size_t number, size_t shards, bool adapter) {
  if (adapter) return kPeftWeights;
  if (shards == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", number + 1, shards);
}

/// Writes a shard, whose tensors' names get the prefix; after each part `go_on(bytes)`
/// says whether to go on.
void write_shard(const WeightsSource& source, const fs::path& path, const Shard& shard,
                 const std::string& prefix,
                 const std::function<bool(uint64_t bytes)>& go_on) {
  format::SafetensorsPlan plan;
  for (const format::TensorSlice& tensor : shard.tensors) {
    plan.add(prefix + tensor.name, tensor.dtype, tensor.global_shape);
  }
  format::SafetensorsWriter writer(path, plan);
  std::vector<std::byte> buffer;
  for (const format::TensorSlice& tensor : shard.tensors) {
    const auto size = static_cast<int64_t>(format::dtype_size(tensor.dtype));
    const int64_t step = kPartBytes / size;
    for (int64_t at = 0; at < tensor.num_elements(); at += step) {
      stop_if_signalled();
      const int64_t end = std::min(tensor.num_elements(), at + step);
      buffer.resize(static_cast<size_t>((end - at) * size));
      source.read_flat_range(tensor, at, end, tensor.dtype, buffer);
      check_finite(source, tensor, at, tensor.dtype, buffer);
      writer.append(buffer);
      if (!go_on(buffer.size())) return;
    }
  }
  writer.finish();
}

/// Writes the shards whose numbers are in `mine`, with several threads.
void write_shards(const WeightsSource& source, const fs::path& dir,
                  const std::vector<Shard>& shards, const std::vector<size_t>& mine,
                  const ExportOptions& options) {
  const bool adapter = holds_adapter(source);
  const std::string prefix = adapter ? kPeftPrefix : "";
  uint64_t total = 0;
  for (const size_t number : mine) total += shards[number].bytes;
  std::mutex mutex;
  uint64_t done = 0;
  std::atomic<bool> failed = false;
  const auto add_done = [&](uint64_t bytes) {
    const std::lock_guard lock(mutex);
    done += bytes;
    if (options.progress) options.progress(done, total);
    return !failed;  // another thread's error is the one to be reported
  };
  const int threads = system::threads_of(options.threads);
  system::share_among_threads(std::ssize(mine), threads, [&](int64_t place) {
    const size_t number = mine[static_cast<size_t>(place)];
    try {
      write_shard(source, dir / shard_name(number, shards.size(), adapter),
                  shards[number], prefix, add_done);
    } catch (...) {
      failed = true;
      throw;
    }
  });
}

/// Returns the source in the form that the model's family has in a Hugging Face
/// directory, and an adapter in that of its own files.
SharedSource in_files(const WeightsSource& source, const ExportOptions& options) {
  SharedSource same(std::shared_ptr<void>(), &source);
  if (holds_adapter(source)) {
    return as_adapter_files(same, model_of_adapter(source).description);
  }
  if (options.any_family || !fs::exists(source.config_path())) return same;
  return as_hugging_face(same, load_model_config(source.config_path()).description);
}

/// Throws InputError unless the target is absent or an empty directory.
void check_target(const fs::path& target) {
  if (is_seen(target) && !(fs::is_directory(target) && fs::is_empty(target))) {
    fail_input("export",
               "{}: exists and is not empty; give a new directory, or remove this "
               "directory first",
               target.string());
  }
}

void write_index(const fs::path& dir, const std::vector<Shard>& shards, uint64_t bytes) {
  constexpr bool adapter = false;  // an adapter has one file
  Json map = Json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const format::TensorSlice& tensor : shards[i].tensors) {
      map[tensor.name] = shard_name(i, shards.size(), adapter);
    }
  }
  const Json index = {{"metadata", {{"total_size", bytes}}},
                      {"weight_map", std::move(map)}};
  write_text_atomic(dir / kIndexName, json_text(index, 2) + "\n");
}

}  // namespace

void stop_if_signalled() {
  const int signal = system::raised_signal().number;
  if (signal == 0) return;
  fail_temporary("export", "the export was stopped by {}; it left no files",
                 system::signal_name(signal));
}

bool holds_adapter(const WeightsSource& source) {
  return source.source().kind == ModelSource::Kind::Checkpoint &&
         std::ranges::count(source.files_to_carry(), kPeftConfig, &CarriedFile::name) > 0;
}

ExportReport export_hf(const WeightsSource& source, const fs::path& out,
                       const ExportOptions& options, comm::Communicator& world) {
  const fs::path target = fs::absolute(out).lexically_normal();
  const fs::path final = target.filename().empty() ? target.parent_path() : target;
  if (options.shard_bytes == 0)
    fail_input("export", "the shard size is 0 bytes; give a larger one");
  ExportReport report;
  const SharedSource files = in_files(source, options);
  std::vector<format::TensorSlice> tensors = files->tensors();
  for (format::TensorSlice& tensor : tensors) {
    if (options.dtype && format::is_float(tensor.dtype)) tensor.dtype = *options.dtype;
    report.bytes += bytes_in(tensor);
  }
  report.tensors = tensors.size();
  const bool adapter = holds_adapter(source);
  const std::vector<Shard> shards =
      make_shards(tensors, adapter ? UINT64_MAX : options.shard_bytes);
  report.shards = static_cast<int>(shards.size());
  for (size_t i = 0; i < shards.size(); ++i) {
    report.files.push_back(shard_name(i, shards.size(), adapter));
  }
  if (shards.size() > 1) report.files.emplace_back(kIndexName);

  std::vector<CarriedFile> side_files;  // on rank 0
  const fs::path temporary = comm::on_rank_zero(world, [&] {
    check_target(final);
    side_files = read_side_files(source, main_dtype(tensors), options.any_family);
    const fs::path dir = final.string() + fmt::format(".tmp.{}", ::getpid());
    fs::create_directories(dir);
    return dir.string();
  });
  for (const CarriedFile& file : side_files) report.files.push_back(file.name);
  try {
    std::vector<size_t> mine;
    for (auto i = static_cast<size_t>(world.rank()); i < shards.size();
         i += static_cast<size_t>(world.size())) {
      mine.push_back(i);
    }
    const auto write = [&] { write_shards(*files, temporary, shards, mine, options); };
    comm::do_and_meet(world, write, {});  // a signal ends the work by itself
    comm::on_rank_zero(world, [&] {
      if (shards.size() > 1) write_index(temporary, shards, report.bytes);
      for (const CarriedFile& file : side_files) {
        const fs::path path = join_inside(temporary, file.name, "export");
        fs::create_directories(path.parent_path());
        write_text_atomic(path, file.text);
      }
    });
    if (options.complete) options.complete(temporary);
    comm::on_rank_zero(world, [&] {
      sync_directory(temporary);
      // rename() replaces an empty directory in one step.
      fs::rename(temporary, final);
      sync_directory(final.parent_path());
    });
  } catch (...) {
    if (world.rank() == 0) try_remove_all(temporary);
    throw;
  }
  return report;
}

ExportReport export_hf(const WeightsSource& source, const fs::path& out,
                       const ExportOptions& options) {
  return export_hf(source, out, options, *comm::self_world("export"));
}

}  // namespace longhaul::checkpoint
