#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "longhaul/checkpoint/manifest.h"
#include "longhaul/checkpoint/state_tensor.h"
#include "longhaul/checkpoint/write/background_saver.h"
#include "longhaul/families/model_config.h"
#include "longhaul/format/safetensors.h"
#include "tests/support/weights_files.h"

namespace longhaul::testing {

/// Returns a model of three small tensors, of one, two and three dims.
inline std::vector<format::TensorSlice> small_model() {
  return {format::TensorSlice::whole("embed.weight", {13, 8}, format::DType::F32),
          format::TensorSlice::whole("norm.weight", {5}, format::DType::F32),
          format::TensorSlice::whole("proj.weight", {3, 4, 6}, format::DType::F32)};
}

inline float element(const std::string& kind, const std::string& name, int64_t index) {
  return static_cast<float>(index) + 1000.0F * static_cast<float>(name.size()) +
         100000.0F * static_cast<float>(kind.size());
}

/// A rank's share of the model's state as ZeRO cuts it: all tensors of all kinds lie side
/// by side in one flat buffer, which is cut into equal parts.
struct FlatState {
  std::vector<float> values;
  std::vector<checkpoint::StateTensor> tensors;
};

inline FlatState flat_share(int rank, int ranks) {
  FlatState state;
  const char* const kinds[] = {checkpoint::kWeight, checkpoint::kExpAvg,
                               checkpoint::kExpAvgSq};
  int64_t total = 0;
  for (const format::TensorSlice& tensor : small_model()) total += tensor.num_elements();
  const int64_t part = (total + ranks - 1) / ranks;
  const int64_t from = std::min(total, rank * part);
  const int64_t to = std::min(total, from + part);
  state.values.reserve(static_cast<size_t>(3 * total));  // spans stay valid
  for (const char* kind : kinds) {
    int64_t start = 0;
    for (const format::TensorSlice& tensor : small_model()) {
      const int64_t begin = std::max(from - start, int64_t{0});
      const int64_t end = std::min(to - start, tensor.num_elements());
      start += tensor.num_elements();
      if (begin >= end) continue;
      const size_t first = state.values.size();
      for (int64_t i = begin; i < end; ++i) {
        state.values.push_back(element(kind, tensor.name, i));
      }
      checkpoint::append_flat_range(kind, tensor, begin, end,
                                    std::as_bytes(std::span(state.values).subspan(first)),
                                    state.tensors);
    }
  }
  return state;
}

inline const char* const kConfigJson = R"({
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "hidden_act": "silu",
  "hidden_size": 8,
  "intermediate_size": 16,
  "max_position_embeddings": 64,
  "num_attention_heads": 2,
  "num_hidden_layers": 1,
  "num_key_value_heads": 1,
  "rms_norm_eps": 1e-05,
  "rope_theta": 10000.0,
  "bos_token_id": 1,
  "eos_token_id": 2,
  "tie_word_embeddings": false,
  "torch_dtype": "float32",
  "vocab_size": 13
})";

/// A tokenizer that reads ASCII letters one by one.
inline const char* const kTokenizerJson = R"({
  "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "post_processor": null, "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
})";

inline std::vector<checkpoint::CarriedFile> side_files() {
  return {{"config.json", {}, kConfigJson},
          {"generation_config.json", {}, "{}"},
          {"tokenizer.json", {}, kTokenizerJson},
          {"LICENSE", {}, "free"}};
}

/// Writes a Hugging Face directory of the model of kConfigJson, with side files and with
/// every weight 1; `change` may change tensors and values before they are written.
inline void write_model(
    const fs::path& dir,
    const std::function<void(std::map<std::string, format::TensorSlice>& tensors,
                             std::map<std::string, std::vector<float>>& values)>& change =
        {}) {
  fs::create_directories(dir);
  for (const checkpoint::CarriedFile& file : side_files()) {
    write_file(dir / file.name, file.text);
  }
  std::map<std::string, format::TensorSlice> tensors;
  std::map<std::string, std::vector<float>> values;
  const ModelConfig config = load_model_config(dir);
  for (const format::TensorSlice& tensor : config.description.stored_tensors()) {
    tensors[tensor.name] =
        format::TensorSlice::whole(tensor.name, tensor.global_shape, format::DType::F32);
    values[tensor.name].assign(static_cast<size_t>(tensor.num_elements()), 1.0F);
  }
  if (change) change(tensors, values);
  format::SafetensorsPlan plan;
  for (const auto& [name, tensor] : tensors) {
    plan.add(name, tensor.dtype, tensor.global_shape);
  }
  format::SafetensorsWriter writer(dir / "model.safetensors", plan);
  for (const auto& [name, tensor] : tensors) {
    std::vector<float>& own = values[name];
    const auto whole =
        format::TensorSlice::whole(name, tensor.global_shape, tensor.dtype);
    own.resize(static_cast<size_t>(whole.num_elements()), 1.0F);
    writer.append(std::as_bytes(std::span(own)));
  }
  writer.finish();
}

inline const std::string kOwnersRun(32, '1');
inline const std::string kStrangersRun(32, '2');

/// Makes a checkpoint one that `run` has saved.
inline void save_as(const fs::path& step_dir, const std::string& run) {
  checkpoint::Manifest manifest = checkpoint::Manifest::read(step_dir);
  manifest.run = run;
  write_file(step_dir / "manifest.json", json_text(manifest.to_json()));
}

/// Saves a checkpoint of the attempt and waits until it is durable. Collective.
inline checkpoint::SaveReport save_now(const fs::path& dir, int64_t step, int attempt,
                                       std::vector<checkpoint::StateTensor> tensors,
                                       comm::Communicator& world, const Json& state = {},
                                       std::vector<checkpoint::CarriedFile> files = {}) {
  checkpoint::SaverOptions options;
  options.dir = dir;
  options.read_back = false;
  options.attempt = attempt;
  options.build = "0.1.0";
  options.layout = {{"world", world.size()}};
  checkpoint::Snapshot snapshot;
  snapshot.step = step;
  snapshot.tensors = std::move(tensors);
  snapshot.state = state;
  snapshot.files = std::move(files);
  return checkpoint::save_checkpoint(options, std::move(snapshot), world);
}

}  // namespace longhaul::testing
