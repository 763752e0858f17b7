#include "longhaul/checkpoint/hf_export.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/config/model_config.h"
#include "longhaul/format/safetensors.h"

namespace longhaul::checkpoint {
namespace {

// A tensor is read and written in parts of about this many bytes.
constexpr int64_t kPartBytes = int64_t{64} << 20;

const char* hf_dtype_name(DType dtype) {
  switch (dtype) {
    case DType::BF16:
      return "bfloat16";
    case DType::F16:
      return "float16";
    case DType::F64:
      return "float64";
    default:
      return "float32";
  }
}

struct Shard {
  std::vector<TensorSlice> tensors;
  uint64_t bytes = 0;
};

uint64_t bytes_of(const TensorSlice& tensor) {
  return static_cast<uint64_t>(tensor.num_elements()) * dtype_size(tensor.dtype);
}

// In the order of the names; a tensor larger than a shard has one of its own.
std::vector<Shard> make_shards(const std::vector<TensorSlice>& tensors, uint64_t limit) {
  std::vector<Shard> shards(1);
  for (const TensorSlice& tensor : tensors) {
    const uint64_t bytes = bytes_of(tensor);
    if (shards.back().bytes > 0 && shards.back().bytes + bytes > limit) {
      shards.emplace_back();
    }
    shards.back().tensors.push_back(tensor);
    shards.back().bytes += bytes;
  }
  // Wide dtypes first keeps every element aligned.
  for (Shard& shard : shards) {
    std::stable_sort(shard.tensors.begin(), shard.tensors.end(),
                     [](const TensorSlice& a, const TensorSlice& b) {
                       return dtype_size(a.dtype) > dtype_size(b.dtype);
                     });
  }
  return shards;
}

// The dtype that holds most elements: the one that config.json names.
DType main_dtype(const std::vector<TensorSlice>& tensors) {
  std::map<DType, int64_t> counts;
  for (const TensorSlice& tensor : tensors) counts[tensor.dtype] += tensor.num_elements();
  DType best = DType::F32;
  int64_t most = -1;
  for (const auto& [dtype, count] : counts) {
    if (count > most) {
      best = dtype;
      most = count;
    }
  }
  return best;
}

class Exporter {
 public:
  Exporter(const WeightsSource& source, fs::path dir, const ExportOptions& options)
      : source_(source), dir_(std::move(dir)), options_(options) {}

  ExportReport run() {
    std::vector<TensorSlice> tensors = source_.tensors();
    for (TensorSlice& tensor : tensors) {
      if (options_.dtype && is_float(tensor.dtype)) tensor.dtype = *options_.dtype;
      report_.bytes += bytes_of(tensor);
    }
    report_.tensors = tensors.size();
    const std::vector<Shard> shards = make_shards(tensors, options_.shard_bytes);
    report_.shards = static_cast<int>(shards.size());
    Json map = Json::object();
    for (size_t i = 0; i < shards.size(); ++i) {
      const std::string name =
          shards.size() == 1
              ? "model.safetensors"
              : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
      write_shard(shards[i], name);
      for (const TensorSlice& tensor : shards[i].tensors) map[tensor.name] = name;
    }
    if (shards.size() > 1) {
      const Json index = {{"metadata", {{"total_size", report_.bytes}}},
                          {"weight_map", std::move(map)}};
      write_text("model.safetensors.index.json", index.dump(2) + "\n");
    }
    write_side_files(main_dtype(tensors));
    sync_directory(dir_);
    return report_;
  }

 private:
  void write_shard(const Shard& shard, const std::string& name) {
    SafetensorsPlan plan;
    for (const TensorSlice& tensor : shard.tensors) {
      plan.add(tensor.name, tensor.dtype, tensor.global_shape);
    }
    SafetensorsWriter writer(dir_ / name, plan);
    std::vector<std::byte> buffer;
    for (const TensorSlice& tensor : shard.tensors) {
      const auto size = static_cast<int64_t>(dtype_size(tensor.dtype));
      const int64_t step = kPartBytes / size;
      for (int64_t at = 0; at < tensor.num_elements(); at += step) {
        const int64_t end = std::min(tensor.num_elements(), at + step);
        buffer.resize(static_cast<size_t>((end - at) * size));
        source_.read_flat_range(tensor, at, end, tensor.dtype, buffer);
        writer.append(buffer);
        done_ += buffer.size();
        if (options_.progress) options_.progress(done_, report_.bytes);
      }
    }
    writer.finish();
    report_.files.push_back(name);
  }

  void write_text(const std::string& name, const std::string& text) {
    write_text_atomic(dir_ / name, text);
    report_.files.push_back(name);
  }

  void write_side_files(DType dtype) {
    for (const CarriedFile& file : source_.files_to_carry()) {
      if (file.name == "config.json") continue;
      const fs::path path = join_inside(dir_, file.name, "export");
      fs::create_directories(path.parent_path());
      copy_file_durable(file.source, path);
      report_.files.push_back(file.name);
    }
    if (!fs::exists(source_.config_path())) {
      throw InputError("export", fmt::format("{}: no such file; a model needs its config",
                                             source_.config_path().string()));
    }
    const ModelConfig config = load_model_config(source_.config_path());
    write_text("config.json", to_hf_config_json(config, hf_dtype_name(dtype)));
  }

  const WeightsSource& source_;
  fs::path dir_;
  const ExportOptions& options_;
  ExportReport report_;
  uint64_t done_ = 0;
};

}  // namespace

ExportReport export_hf(const WeightsSource& source, const fs::path& out,
                       const ExportOptions& options) {
  const fs::path target = fs::absolute(out).lexically_normal();
  fs::path final = target.filename().empty() ? target.parent_path() : target;
  std::error_code error;
  if (fs::exists(final, error) && !(fs::is_directory(final) && fs::is_empty(final))) {
    throw InputError("export", fmt::format("{}: exists and is not empty; give a new "
                                           "directory, or remove this one first",
                                           out.string()));
  }
  if (options.shard_bytes == 0) throw InputError("export", "a shard size of 0 bytes");
  const fs::path temporary = final.string() + fmt::format(".tmp.{}", ::getpid());
  try {
    fs::create_directories(temporary);
    ExportReport report = Exporter(source, temporary, options).run();
    // rename() replaces an empty directory in one step.
    fs::rename(temporary, final);
    sync_directory(final.parent_path());
    return report;
  } catch (...) {
    fs::remove_all(temporary, error);
    throw;
  }
}

uint64_t parse_byte_size(const std::string& text) {
  double number = 0.0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  std::string unit(parsed.ptr, end);
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  while (!unit.empty() && unit.front() == ' ') unit.erase(0, 1);
  static const std::map<std::string, double> kUnits = {
      {"", 1},         {"B", 1},           {"KB", 1e3},
      {"MB", 1e6},     {"GB", 1e9},        {"TB", 1e12},
      {"KIB", 1024.0}, {"MIB", 1048576.0}, {"GIB", 1073741824.0}};
  const auto found = kUnits.find(unit);
  const double bytes = found == kUnits.end() ? 0.0 : std::floor(number * found->second);
  if (parsed.ec != std::errc() || found == kUnits.end() || !(bytes >= 1) ||
      bytes > 9e18) {
    throw InputError("argument",
                     fmt::format("'{}' is no size; write 5GB, 500MB or 2GiB", text));
  }
  return static_cast<uint64_t>(bytes);
}

}  // namespace longhaul::checkpoint
