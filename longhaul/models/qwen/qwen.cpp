#include "longhaul/models/qwen/qwen.h"

#include "longhaul/models/decoder.h"
#include "longhaul/models/decoder_source.h"

namespace longhaul::models {

std::unique_ptr<Model> make_qwen(const ModelConfig& config, const StageSpec& stage,
                                 ParameterSet& parameters) {
  const QwenSettings& settings = qwen_settings(config);
  nn::AttentionParts parts;
  if (settings.biases) parts.bias = nn::Bias::Yes;
  if (settings.head_norms) parts.head_norm_eps = settings.rms_norm_eps;
  return std::make_unique<Decoder>(settings, config.max_position_embeddings, stage,
                                   parameters, parts);
}

std::unique_ptr<SourceModel> make_qwen_source(const ModelConfig& config,
                                              const SourceFiles& files) {
  const QwenSettings& settings = qwen_settings(config);
  return std::make_unique<DecoderSource>(
      settings, config.vocab_size, files,
      DecoderSource::Parts{.biases = settings.biases, .head_norms = settings.head_norms});
}

}  // namespace longhaul::models
