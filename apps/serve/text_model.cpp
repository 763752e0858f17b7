#include "apps/serve/text_model.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/families/network.h"

namespace longhaul::apps {

std::unique_ptr<tokenizer::Tokenizer> tokenizer_beside(const ModelConfig& config) {
  const fs::path dir = config.source_path.parent_path();
  if (!tokenizer::find_tokenizer_file(dir)) return {};
  return tokenizer::Tokenizer::load(dir);
}

std::unique_ptr<tokenizer::Tokenizer> tokenizer_of(const std::string& verb,
                                                   const std::string& named,
                                                   const ModelConfig& config) {
  if (!named.empty()) return tokenizer::Tokenizer::load(named);
  auto found = tokenizer_beside(config);
  if (!found) {
    fail_input(verb,
               "{} holds no tokenizer.json and no tokenizer.model; name one with "
               "--tokenizer DIR",
               config.source_path.parent_path().string());
  }
  return found;
}

void check_causal(const std::string& verb, const ModelConfig& config) {
  if (config.description.is_causal()) return;
  fail_input(verb,
             "a model of type \"{}\" attends to both sides of a token: it predicts "
             "masked tokens and cannot continue a text; longhaul eval measures it",
             config.model_type);
}

void check_whole_data(const std::string& verb, const ParallelSection& parallel,
                      const NamedModel& model, int ranks) {
  const bool has_experts = families::has_experts(model.config.network);
  const auto refuse = [&](const std::string& what) {
    fail_config(
        verb, "{}, which splits data, and each sequence is whole on all ranks: start {}",
        what,
        has_experts ? "tp * pp * ep ranks and give --tp, --pp and --ep"
                    : "tp * pp ranks and give --tp and --pp");
  };
  if (parallel.cp > 1) refuse(fmt::format("the layout has cp {}", parallel.cp));
  const int64_t whole = parallel.tp * parallel.pp;
  if (ranks % whole == 0 && ranks > whole && ranks != whole * parallel.ep) {
    refuse(fmt::format("{} are dp {} of tp {} x pp {}{}", counted(ranks, "rank"),
                       ranks / whole, parallel.tp, parallel.pp,
                       has_experts ? fmt::format(" with ep {}", parallel.ep) : ""));
  }
}

}  // namespace longhaul::apps
