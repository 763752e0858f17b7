#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/checkpoint/state_tensor.h"

namespace longhaul::faults {

// A model of two tensors whose elements tell which save wrote them.

inline std::vector<format::TensorSlice> tiny_model() {
  return {format::TensorSlice::whole("embed.weight", {5, 4}, format::DType::F32),
          format::TensorSlice::whole("norm.weight", {3}, format::DType::F32)};
}

inline constexpr const char* kTinyKinds[] = {checkpoint::kWeight, checkpoint::kExpAvg,
                                             checkpoint::kExpAvgSq};

/// Returns an element's value: a whole number below 2^24, which fp32 holds exactly.
inline float tiny_value(int64_t step, int attempt, const std::string& kind,
                        const std::string& name, int64_t index) {
  return static_cast<float>(index + 32 * static_cast<int64_t>(name.size()) +
                            1024 * static_cast<int64_t>(kind.size()) + 32768 * step +
                            4194304 * (attempt % 4));
}

/// A rank's part: a range of the elements of each tensor.
struct TinyShare {
  std::vector<float> values;
  std::vector<checkpoint::StateTensor> tensors;
};

inline TinyShare tiny_share(int64_t step, int attempt, int rank, int ranks) {
  TinyShare share;
  share.values.reserve(1024);  // the spans stay valid
  for (const char* kind : kTinyKinds) {
    for (const format::TensorSlice& tensor : tiny_model()) {
      const int64_t begin = tensor.num_elements() * rank / ranks;
      const int64_t end = tensor.num_elements() * (rank + 1) / ranks;
      const size_t first = share.values.size();
      for (int64_t i = begin; i < end; ++i) {
        share.values.push_back(tiny_value(step, attempt, kind, tensor.name, i));
      }
      checkpoint::append_flat_range(kind, tensor, begin, end,
                                    std::as_bytes(std::span(share.values).subspan(first)),
                                    share.tensors);
    }
  }
  return share;
}

inline Json tiny_state(int64_t step, int attempt) {
  return {{"step", step}, {"attempt", attempt}};
}

inline std::vector<checkpoint::CarriedFile> tiny_files() {
  return {{"config.json", {}, R"({"model_type": "llama"})"},
          {"deep/LICENSE", {}, "free"}};
}

/// The save that wrote a checkpoint.
struct TinySave {
  int64_t step = 0;
  int attempt = 0;
};

/// Reads a whole checkpoint; throws when anything differs from what its save wrote.
inline TinySave read_tiny(const checkpoint::CheckpointReader& reader) {
  const auto require = [&](bool good, const std::string& what) {
    if (!good) throw std::runtime_error(reader.path().string() + ": wrong " + what);
  };
  const TinySave save = {reader.state().at("step").get<int64_t>(),
                         reader.state().at("attempt").get<int>()};
  require(save.step == reader.step(), "step");
  require(reader.names().size() == std::size(kTinyKinds) * tiny_model().size(), "names");
  for (const char* kind : kTinyKinds) {
    for (const format::TensorSlice& tensor : tiny_model()) {
      std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
      reader.read(kind, tensor, format::DType::F32,
                  std::as_writable_bytes(std::span(values)));
      for (size_t i = 0; i < values.size(); ++i) {
        require(values[i] == tiny_value(save.step, save.attempt, kind, tensor.name,
                                        static_cast<int64_t>(i)),
                kind + (" of " + tensor.name));
      }
    }
  }
  std::vector<std::string> carried;
  for (const checkpoint::CarriedFile& file : reader.hf_files()) {
    carried.push_back(file.name + "=" + read_text(file.source));
  }
  std::sort(carried.begin(), carried.end());
  std::vector<std::string> expected;
  for (const auto& file : tiny_files()) expected.push_back(file.name + "=" + file.text);
  std::sort(expected.begin(), expected.end());
  require(carried == expected, "hf files");
  reader.verify();
  return save;
}

inline TinySave read_tiny(const fs::path& step_dir) {
  return read_tiny(checkpoint::CheckpointReader::open(step_dir));
}

}  // namespace longhaul::faults
