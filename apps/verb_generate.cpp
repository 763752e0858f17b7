#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "apps/loaded_model.h"
#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/infer/generate.h"
#include "longhaul/system/memory.h"
#include "longhaul/tokenizer/stream_decoder.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::apps {
namespace {

struct GenerateOptions {
  std::string model;
  std::string prompt;
  std::string tokenizer;
  std::string dtype = "auto";
  std::string device = "auto";
  bool json = false;
  infer::SamplingOptions sampling;
};

/// Where the tokenizer is: given, beside the weights' config.
std::unique_ptr<tokenizer::Tokenizer> find_tokenizer(const GenerateOptions& options,
                                                     const ModelConfig& config) {
  if (!options.tokenizer.empty()) return tokenizer::Tokenizer::load(options.tokenizer);
  const fs::path dir = config.source_path.parent_path();
  if (!tokenizer::find_tokenizer_file(dir)) {
    throw InputError("generate",
                     fmt::format("{} holds no tokenizer.json and no tokenizer.model; "
                                 "name one with --tokenizer DIR",
                                 dir.string()));
  }
  return tokenizer::Tokenizer::load(dir);
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void run(GenerateOptions options) {
  tune_malloc();
  const auto source = checkpoint::WeightsSource::open(options.model);
  const ModelConfig config = load_model_config(source->config_path());
  const auto tokenizer = find_tokenizer(options, config);
  std::vector<int64_t> prompt;
  for (const tokenizer::TokenId id : tokenizer->special_prefix()) prompt.push_back(id);
  for (const tokenizer::TokenId id : tokenizer->encode(options.prompt, false))
    prompt.push_back(id);
  if (prompt.empty()) {
    throw InputError("generate",
                     "the prompt has no tokens; give some text with --prompt");
  }
  for (const int64_t id : prompt) {
    if (id >= config.vocab_size) {
      throw InputError("generate",
                       fmt::format("token id {} is past the model's vocabulary of "
                                   "{}: this is not the model's tokenizer",
                                   id, config.vocab_size));
    }
  }
  options.sampling.stop_ids = config.eos_token_ids;
  if (const auto eos = tokenizer->eos_id()) options.sampling.stop_ids.push_back(*eos);
  const auto positions =
      static_cast<int64_t>(prompt.size()) + options.sampling.max_new_tokens;
  options.sampling.device = parse_device(options.device);
  const LoadedModel loaded = load_model(
      options.model,
      {options.dtype, positions, /*gradients=*/false, options.sampling.device});

  if (!options.json) print(options.prompt);
  tokenizer::StreamDecoder stream(*tokenizer, /*skip_special_tokens=*/false,
                                  {prompt.begin(), prompt.end()});
  std::string text;
  const auto give = [&](const std::string& more) {
    text += more;
    if (!options.json) print(more);
  };
  const auto ids =
      infer::generate(*loaded.model, prompt, options.sampling, [&](int64_t id) {
        give(stream.add(static_cast<tokenizer::TokenId>(id)));
        return true;
      });
  give(stream.finish());
  if (options.json) {
    const Json json = {
        {"prompt", options.prompt}, {"prompt_ids", prompt}, {"ids", ids}, {"text", text}};
    fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
    return;
  }
  fmt::print("\n");
}

}  // namespace

void add_generate(CLI::App& program, Outcome& /*outcome*/) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* verb = program.add_subcommand(kGenerateVerb.name, kGenerateVerb.description);
  verb->add_option("model", options->model, "HF directory, checkpoint or run")
      ->required();
  verb->add_option("--prompt", options->prompt, "text to continue")->required();
  verb->add_option("--tokenizer", options->tokenizer,
                   "tokenizer.json, tokenizer.model or a directory with one; default: "
                   "the model's own");
  verb->add_option("--max-new-tokens", options->sampling.max_new_tokens,
                   "at most so many")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  verb->add_option("--temperature", options->sampling.temperature,
                   "0: always the most likely token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  verb->add_option("--top-p", options->sampling.top_p,
                   "sample from the smallest set of tokens with this probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  verb->add_option("--seed", options->sampling.seed, "of the sampling")
      ->capture_default_str();
  verb->add_option("--dtype", options->dtype, "auto: as the config says")
      ->check(CLI::IsMember({"auto", "fp32", "bf16"}))
      ->capture_default_str();
  verb->add_option("--device", options->device, "auto: a GPU where one is found")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  verb->add_flag("--json", options->json, "one JSON object with ids and text");
  verb->footer(
      "Example: longhaul generate runs/cpt --prompt \"The sea\" --temperature 0.8 "
      "--top-p 0.9");
  verb->callback([options] {
    from_newest_whole(options->model, [&](const fs::path& model) {
      GenerateOptions now = *options;
      now.model = model.string();
      run(now);
    });
  });
}

}  // namespace longhaul::apps
