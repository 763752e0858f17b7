#pragma once

#include <optional>

#include "longhaul/families/decoder.h"
#include "longhaul/models/source_model.h"

namespace longhaul::models {

/// By modeling_llama.py, modeling_qwen2.py, modeling_qwen3.py, modeling_mistral.py and
/// modeling_rope_utils.py of transformers.
class DecoderSource : public SourceModel {
 public:
  /// What some families have in their attention.
  struct Parts {
    bool biases = false;                 ///< of queries, keys and values
    bool head_norms = false;             ///< of each head of queries and keys
    std::optional<int64_t> window = {};  ///< positions that a token sees at most
  };
  DecoderSource(const DecoderSettings& settings, int64_t vocab_size,
                const SourceFiles& files, const Parts& parts)
      : files_(files), settings_(settings), vocab_size_(vocab_size), parts_(parts) {}

  at::Tensor embed(const at::Tensor& ids, const at::Tensor& positions) const override;
  at::Tensor layer(int64_t number, const at::Tensor& x,
                   const at::Tensor& positions) const override;
  at::Tensor logits(const at::Tensor& x) const override;

 private:
  /// Over the last dim.
  at::Tensor norm(const at::Tensor& x, const std::string& name) const;
  at::Tensor project(const at::Tensor& x, const std::string& name, int64_t heads,
                     int64_t length) const;
  at::Tensor attention(const at::Tensor& x, const std::string& layer,
                       const at::Tensor& positions) const;

  const SourceFiles& files_;
  DecoderSettings settings_;
  int64_t vocab_size_;
  Parts parts_;
};

}  // namespace longhaul::models
