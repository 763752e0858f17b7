#pragma once

#include "longhaul/families/qwen/qwen.h"
#include "longhaul/models/source_model.h"

namespace longhaul::models {

/// By modeling_qwen2.py and modeling_qwen3.py of transformers.
class QwenSource : public SourceModel {
 public:
  QwenSource(const ModelConfig& config, const SourceFiles& files)
      : files_(files), settings_(qwen_settings(config)), vocab_size_(config.vocab_size) {}

  at::Tensor embed(const at::Tensor& ids) const override;
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
  QwenSettings settings_;
  int64_t vocab_size_;
};

}  // namespace longhaul::models
