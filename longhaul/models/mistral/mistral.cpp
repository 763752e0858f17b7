#include "longhaul/models/mistral/mistral.h"

#include "longhaul/models/decoder.h"
#include "longhaul/models/decoder_source.h"

namespace longhaul::models {

std::unique_ptr<Model> make_mistral(const ModelConfig& config, const StageSpec& stage,
                                    ParameterSet& parameters) {
  const MistralSettings& settings = mistral_settings(config);
  nn::AttentionParts parts;
  parts.window = settings.sliding_window.value_or(parts.window);
  return std::make_unique<Decoder>(settings.decoder, config.max_position_embeddings,
                                   stage, parameters, parts);
}

std::unique_ptr<SourceModel> make_mistral_source(const ModelConfig& config,
                                                 const SourceFiles& files) {
  const MistralSettings& settings = mistral_settings(config);
  return std::make_unique<DecoderSource>(
      settings.decoder, config.vocab_size, files,
      DecoderSource::Parts{.window = settings.sliding_window});
}

}  // namespace longhaul::models
