#include <fmt/format.h>

#include <memory>
#include <numbers>

#include "apps/loaded_model.h"
#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/comm/backend.h"
#include "longhaul/data/sources/open_source.h"
#include "longhaul/data/store/self_test.h"
#include "longhaul/data/store/store.h"
#include "longhaul/infer/evaluate.h"
#include "longhaul/system/memory.h"
#include "longhaul/system/progress.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::apps {
namespace {

struct EvalOptions {
  std::string model;
  std::string data;
  int64_t seq_len = 0;
  int64_t max_sequences = 0;
  int64_t micro_size = 1;
  std::string dtype = "auto";
  std::string device = "auto";
  bool document_mask = false;
  bool plain = false;
  bool json = false;
};

void run(const EvalOptions& options) {
  tune_malloc();
  const auto peek = checkpoint::WeightsSource::open(options.model);
  const ModelConfig config = load_model_config(peek->config_path());
  const int64_t seq_len = options.seq_len > 0
                              ? options.seq_len
                              : std::min<int64_t>(config.max_position_embeddings, 2048);
  const auto source = data::open_source(options.data, seq_len, options.document_mask);
  source->limit_ids(config.vocab_size);
  if (tokenizer::find_tokenizer_file(config.source_path.parent_path())) {
    const auto tokenizer = tokenizer::Tokenizer::load(config.source_path.parent_path());
    data::check_tokenizer(*source, tokenizer->fingerprint());
    data::check_self_test(options.data, *tokenizer, "the model's tokenizer");
  }
  const at::Device device = parse_device(options.device);
  const LoadedModel loaded =
      load_model(options.model, {options.dtype, seq_len, /*gradients=*/false, device});
  const auto self = comm::self_world();
  Progress progress("eval", "sequences");
  const infer::Evaluation result = infer::evaluate(
      infer::loss_of(*loaded.model, device, !options.plain), *source, *self,
      {options.max_sequences, options.micro_size, /*micro_batches=*/1,
       [&](int64_t done, int64_t total) { progress.update(done, total); }});
  progress.finish();
  // Bits per byte needs the text's size, which a store knows.
  const double bytes_per_token = data::bytes_per_token(options.data);
  const double bits_per_byte =
      bytes_per_token > 0 ? result.loss() / std::numbers::ln2 / bytes_per_token : 0.0;
  if (options.json) {
    Json json = {{"loss", result.loss()},
                 {"perplexity", result.perplexity()},
                 {"targets", result.targets[0]},
                 {"sequences", result.sequences},
                 {"seq_len", seq_len}};
    if (bits_per_byte > 0) json["bits_per_byte"] = bits_per_byte;
    fmt::print("{}\n", json.dump());
    return;
  }
  fmt::print("model       {}\n", loaded.source->describe());
  fmt::print("data        {}\n", source->describe());
  fmt::print("sequences   {} of {} tokens, {} targets\n", grouped(result.sequences),
             seq_len, grouped(result.targets[0]));
  fmt::print("loss        {:.5f}\nperplexity  {:.3f}\n", result.loss(),
             result.perplexity());
  if (bits_per_byte > 0) fmt::print("bits/byte   {:.4f}\n", bits_per_byte);
}

}  // namespace

void add_eval(CLI::App& program, Outcome& /*outcome*/) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* verb = program.add_subcommand(kEvalVerb.name, kEvalVerb.description);
  verb->add_option("model", options->model, "HF directory, checkpoint or run")
      ->required();
  verb->add_option("--data", options->data, "token store or save_to_disk directory")
      ->required();
  verb->add_option("--seq-len", options->seq_len,
                   "tokens per sequence; default: the model's positions, at most 2048")
      ->check(CLI::PositiveNumber);
  verb->add_option("--max-sequences", options->max_sequences,
                   "the first so many sequences; default: all")
      ->check(CLI::PositiveNumber);
  verb->add_option("--micro-size", options->micro_size, "sequences per forward pass")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option("--dtype", options->dtype, "auto: as the config says")
      ->check(CLI::IsMember({"auto", "fp32", "bf16"}))
      ->capture_default_str();
  verb->add_option("--device", options->device, "auto: a GPU where one is found")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  verb->add_flag("--document-mask", options->document_mask,
                 "attention stops at document boundaries");
  verb->add_flag("--plain", options->plain, "composite forms instead of fused ones");
  verb->add_flag("--json", options->json, "one JSON object on standard output");
  verb->footer("Example: longhaul eval runs/cpt --data data/wiki-val --seq-len 2048");
  verb->callback([options] {
    from_newest_whole(options->model, [&](const fs::path& model) {
      EvalOptions now = *options;
      now.model = model.string();
      run(now);
    });
  });
}

}  // namespace longhaul::apps
