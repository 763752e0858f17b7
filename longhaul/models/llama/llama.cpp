#include "longhaul/models/llama/llama.h"

#include "longhaul/models/decoder.h"
#include "longhaul/models/decoder_source.h"

namespace longhaul::models {

std::unique_ptr<Model> make_llama(const ModelConfig& config, const StageSpec& stage,
                                  ParameterSet& parameters) {
  return std::make_unique<Decoder>(llama_settings(config), config.max_position_embeddings,
                                   stage, parameters);
}

std::unique_ptr<SourceModel> make_llama_source(const ModelConfig& config,
                                               const SourceFiles& files) {
  return std::make_unique<DecoderSource>(llama_settings(config), config.vocab_size, files,
                                         DecoderSource::Parts{});
}

}  // namespace longhaul::models
