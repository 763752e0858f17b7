#include "apps/loaded_model.h"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <unistd.h>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/checkpoint/fall_back.h"
#include "longhaul/checkpoint/tied_head.h"
#include "longhaul/system/terminal.h"
#include "longhaul/tensor/flat_pieces.h"

namespace longhaul::apps {
namespace {

void say_warning(const std::string& line) {
  fmt::print(stderr, "{} {}\n", warning_text("longhaul: warning:", STDERR_FILENO),
             printable(line));
}

}  // namespace

DType parse_compute_dtype(const std::string& dtype, const ModelConfig& config) {
  if (dtype == "fp32") return DType::F32;
  if (dtype == "bf16") return DType::BF16;
  if (dtype != "auto") {
    throw ConfigError(
        "dtype", fmt::format("--dtype {} is not known; use auto, fp32 or bf16", dtype));
  }
  const Json json = parse_json(config.source_json, config.source_path.string());
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (json.contains(key) && json[key] == "bfloat16") return DType::BF16;
  }
  return DType::F32;
}

at::Device parse_device(const std::string& name) {
  const bool has_cuda = at::globalContext().hasCUDA();
  if (name == "cpu" || (name == "auto" && !has_cuda)) return at::kCPU;
  if ((name == "cuda" || name == "auto") && has_cuda) return {at::kCUDA, 0};
  throw ConfigError("device",
                    fmt::format("--device {} is not usable here; use auto or cpu", name));
}

void from_newest_whole(const fs::path& named,
                       const std::function<void(const fs::path&)>& use) {
  checkpoint::with_fall_back(named, use, say_warning);
}

LoadedModel load_model(const fs::path& path, const LoadOptions& options) {
  LoadedModel loaded;
  checkpoint::SharedSource source = checkpoint::WeightsSource::open(path);
  const std::string& note = source->source().note;
  if (note.find("passed over") != std::string::npos) say_warning(note);
  loaded.config = load_model_config(source->config_path());
  loaded.policy.compute = parse_compute_dtype(options.dtype, loaded.config);
  loaded.model = models::build(loaded.config);
  const auto parameters = loaded.model->parameters();
  loaded.source = checkpoint::as_parameters(source, loaded.config.description);
  checkpoint::check_weights(loaded.source, loaded.config.description);
  checkpoint::check_tied_head(*loaded.source, loaded.config);

  loaded.flat = std::make_unique<FlatBuffers>(
      flat_parameters(parameters, {1.0, 0.0, !options.gradients}), loaded.policy,
      options.device);
  read_weights(*loaded.flat, [&](const TensorSlice& slice, int64_t begin, int64_t end,
                                 DType type, std::span<std::byte> out) {
    loaded.source->read_flat_range(slice, begin, end, type, out);
  });
  if (options.positions > loaded.config.max_position_embeddings) {
    throw InputError("model",
                     fmt::format("{} positions are needed, the model has {} "
                                 "(max_position_embeddings in {}); use a shorter length",
                                 options.positions, loaded.config.max_position_embeddings,
                                 loaded.config.source_path.string()));
  }
  loaded.model->prepare(options.positions, options.device);
  return loaded;
}

}  // namespace longhaul::apps
