#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>

#include "apps/named_model.h"
#include "apps/objects/local_input.h"
#include "apps/program.h"
#include "apps/serve/text_model.h"
#include "apps/verbs.h"
#include "longhaul/base/json.h"
#include "longhaul/infer/chat_prompt.h"
#include "longhaul/infer/generate.h"
#include "longhaul/session/sequence_runner.h"
#include "longhaul/tokenizer/stream_decoder.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::apps {
namespace {

constexpr const char* kGenerateArea = "generate";

struct GenerateOptions {
  ModelCall call;
  std::string prompt;
  std::string system;
  std::string tokenizer;
  bool chat = false;
  bool json = false;
  infer::SamplingOptions sampling;
};

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// Returns what the model is to continue, the text as it was given or as the chat
/// template writes it. Appends the ids that end the answer to `stop_ids`.
infer::ChatPrompt asked_prompt(const GenerateOptions& options,
                               const tokenizer::Tokenizer& tokenizer,
                               const ModelConfig& config,
                               std::vector<int64_t>& stop_ids) {
  stop_ids = config.eos_token_ids;
  if (const auto eos = tokenizer.eos_id()) stop_ids.push_back(*eos);
  if (!options.chat) {
    return {options.prompt,
            infer::encode_prompt(tokenizer, options.prompt, config.vocab_size),
            {}};
  }
  infer::ChatPrompt prompt =
      infer::chat_prompt(tokenizer, options.prompt, options.system, config.vocab_size);
  if (prompt.end_of_turn) stop_ids.push_back(*prompt.end_of_turn);
  return prompt;
}

/// Continues the prompt. Rank 0 writes. Collective.
void generate(GenerateOptions options, const objects::Access& objects,
              const fs::path& path, const World& world) {
  const NamedModel model = open_model(path, objects, *world, options.call.adapter);
  check_causal(kGenerateArea, model.config);
  const auto tokenizer = tokenizer_of(kGenerateArea, options.tokenizer, model.config);
  if (world->rank() == 0) std::ranges::for_each(tokenizer->warnings(), say_warning);
  const infer::ChatPrompt prompt =
      asked_prompt(options, *tokenizer, model.config, options.sampling.stop_ids);
  const auto positions =
      static_cast<int64_t>(prompt.ids.size()) + options.sampling.max_new_tokens;
  const ParallelSection parallel = asked_parallel(options.call, model, *world);
  check_whole_data(kGenerateArea, parallel, model, world->size());
  const session::Session session =
      load_model(model, options.call, parallel, positions, /*micro_size=*/1, world);

  const bool speaks = world->rank() == 0;
  const bool streams = speaks && !options.json;
  if (streams && !options.chat) print(prompt.text);
  tokenizer::StreamDecoder stream(*tokenizer, /*skip_special_tokens=*/false,
                                  {prompt.ids.begin(), prompt.ids.end()});
  std::string text;
  const auto give = [&](const std::string& more) {
    text += more;
    if (streams) print(more);
  };
  session::SequenceRunner sequence(session);
  const auto ids = infer::generate(
      [&](const std::vector<int64_t>& seen, int64_t step) {
        return step == 0 ? sequence.begin({{seen, options.sampling}})[0].id
                         : sequence.next()[0].id;
      },
      prompt.ids, options.sampling,
      [&](int64_t id) {
        give(stream.add(static_cast<tokenizer::TokenId>(id)));
        return true;
      });
  give(stream.finish());
  if (streams) fmt::print("\n");
  if (!speaks || !options.json) return;
  const Json json = {
      {"prompt", prompt.text}, {"prompt_ids", prompt.ids}, {"ids", ids}, {"text", text}};
  fmt::print("{}\n", json_text(json));
}

}  // namespace

void add_generate(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* verb = program.add_subcommand(kGenerateVerb.name, kGenerateVerb.description);
  add_model_options(*verb, options->call);
  verb->add_option("--prompt", options->prompt, "text to continue")->required();
  CLI::Option* chat =
      verb->add_flag("--chat", options->chat,
                     "the prompt is a user's message, which the model's chat template "
                     "writes; prints the answer alone");
  verb->add_option("--system", options->system, "with --chat, the system message")
      ->needs(chat);
  verb->add_option("--tokenizer", options->tokenizer,
                   "tokenizer.json, tokenizer.model or a directory with one; default: "
                   "the model's own");
  verb->add_option("--max-new-tokens", options->sampling.max_new_tokens,
                   "largest number of tokens to generate")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  verb->add_option("--temperature", options->sampling.temperature,
                   "temperature of the sampling; 0: always the most likely token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  verb->add_option("--top-p", options->sampling.top_p,
                   "sample from the smallest set of tokens with this probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  verb->add_option("--seed", options->sampling.seed, "of the sampling")
      ->capture_default_str();
  verb->add_flag("--json", options->json, "one JSON object with ids and text");
  verb->footer(
      "Examples:\n"
      "  longhaul generate runs/cpt --prompt \"The sea\" --temperature 0.8 --top-p 0.9\n"
      "  longhaul generate hf/ --chat --prompt \"Who are you?\"\n"
      "  mpirun -n 4 longhaul generate runs/cpt --prompt \"The sea\" --tp 4");
  verb->callback([options, &outcome] {
    const LocalCheckpoint model(options->call.model, outcome.objects);
    options->call.model = model.path();
    options->tokenizer = local_input(options->tokenizer, outcome.objects);
    outcome.exit_code = with_model(
        options->call.model, outcome.objects,
        std::bind_front(generate, std::cref(*options), std::cref(outcome.objects)));
  });
}

}  // namespace longhaul::apps
