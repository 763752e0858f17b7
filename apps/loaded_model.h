#pragma once

#include <functional>
#include <memory>
#include <string>

#include "longhaul/checkpoint/hf_forms.h"
#include "longhaul/families/model_config.h"
#include "longhaul/models/model.h"
#include "longhaul/tensor/flat_buffers.h"

namespace longhaul::apps {

/// A model ready for inference: its weights are frozen and there is no optimizer.
struct LoadedModel {
  checkpoint::SharedSource source;
  ModelConfig config;
  DTypePolicy policy;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<FlatBuffers> flat;
};

/// Loads an HF directory, a checkpoint or a run (its newest valid checkpoint).
/// dtype: "fp32", "bf16", or "auto": bf16 where config.json says bfloat16, else fp32.
struct LoadOptions {
  std::string dtype = "auto";
  int64_t positions = 0;   ///< the longest sequence; InputError when the model has fewer
  bool gradients = false;  ///< give the weights fp32 accumulators
  at::Device device = at::kCPU;
};
LoadedModel load_model(const fs::path& path, const LoadOptions& options);

/// "cpu", "cuda", or "auto": cuda where one is usable. ConfigError otherwise.
at::Device parse_device(const std::string& name);

/// Calls `use` with the model that a person named; of a run whose newest checkpoint turns
/// out to be damaged, again with an older one, and standard error says so.
void from_newest_whole(const fs::path& named,
                       const std::function<void(const fs::path&)>& use);

/// What --dtype accepts.
DType parse_compute_dtype(const std::string& dtype, const ModelConfig& config);

}  // namespace longhaul::apps
