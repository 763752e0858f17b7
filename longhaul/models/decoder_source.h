#pragma once

#include "longhaul/families/decoder.h"
#include "longhaul/models/source_model.h"

namespace longhaul::models {

/// By modeling_llama.py, modeling_qwen2.py, modeling_qwen3.py and modeling_rope_utils.py
/// of transformers.
class DecoderSource : public SourceModel {
 public:
  /// `biases`: of queries, keys and values; `head_norms`: of each head of queries and
  /// keys.
  DecoderSource(const DecoderSettings& settings, int64_t vocab_size,
                const SourceFiles& files, bool biases = false, bool head_norms = false)
      : files_(files),
        settings_(settings),
        vocab_size_(vocab_size),
        biases_(biases),
        head_norms_(head_norms) {}

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
  bool biases_;
  bool head_norms_;
};

}  // namespace longhaul::models
