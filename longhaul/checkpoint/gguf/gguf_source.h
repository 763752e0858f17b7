#pragma once

#include <map>
#include <string>
#include <vector>

#include "longhaul/checkpoint/gguf/gguf_model.h"
#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/families/model_config.h"
#include "longhaul/format/gguf.h"

namespace longhaul::checkpoint {

/// The tensors of a GGUF file in the role of a model's weights, under the names of
/// parameters. Elements of Q8_0 have the dtype F32. Immutable; any thread may read.
class GgufSource final : public WeightsSource {
 public:
  /// Opens and checks a file. `config` is the model's config.json, or empty: it is then
  /// made of the file's keys. `scratch` is a directory for it, which must live as long as
  /// this object. The tokenizer's files in `tokenizer_dir` go along, unless it is empty.
  /// Throws InputError for a file that is damaged, of types or architectures that are not
  /// read, whose keys say what this program does not know, or whose tensors are not those
  /// of its keys.
  GgufSource(const fs::path& file, const fs::path& config, const fs::path& scratch,
             const fs::path& tokenizer_dir);

  const ModelSource& source() const override { return source_; }
  std::vector<format::TensorSlice> tensors() const override { return tensors_; }
  void read(const format::TensorSlice& box, format::DType dst,
            std::span<std::byte> out) const override;
  /// Throws Error (Internal), since ranks do not read such a file together.
  const StoredTensors& stored() const override;
  fs::path config_path() const override { return config_path_; }
  std::vector<CarriedFile> files_to_carry() const override { return files_; }
  std::vector<std::string> ignored() const override { return {}; }
  /// Returns "llama, Q8_0" for the log.
  std::string what() const;

 private:
  /// Where a parameter's rows lie.
  struct Place {
    const GgufPart* part = nullptr;
    const format::GgufTensor* tensor = nullptr;
    int64_t first = 0;  ///< element of the tensor with which the parameter begins
    std::vector<int64_t> shape;
  };
  void place_parameters(const ModelConfig& config);

  MappedFile file_;
  format::GgufHeader header_;
  ModelSource source_;
  fs::path config_path_;
  std::vector<CarriedFile> files_;
  GgufModel model_;
  std::map<std::string, Place> places_;
  std::vector<format::TensorSlice> tensors_;
};

}  // namespace longhaul::checkpoint
