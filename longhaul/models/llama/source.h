#pragma once

#include "longhaul/families/llama/llama.h"
#include "longhaul/models/source_model.h"

namespace longhaul::models {

/// By modeling_llama.py of transformers.
class LlamaSource : public SourceModel {
 public:
  LlamaSource(const ModelConfig& config, const SourceFiles& files)
      : files_(files),
        settings_(llama_settings(config)),
        vocab_size_(config.vocab_size) {}

  at::Tensor embed(const at::Tensor& ids) const override;
  at::Tensor layer(int64_t number, const at::Tensor& x,
                   const at::Tensor& positions) const override;
  at::Tensor logits(const at::Tensor& x) const override;

 private:
  at::Tensor norm(const at::Tensor& x, const std::string& name) const;
  at::Tensor attention(const at::Tensor& x, const std::string& layer,
                       const at::Tensor& positions) const;

  const SourceFiles& files_;
  LlamaSettings settings_;
  int64_t vocab_size_;
};

}  // namespace longhaul::models
