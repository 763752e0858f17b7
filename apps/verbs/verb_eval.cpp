#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numbers>

#include "apps/named_model.h"
#include "apps/objects/local_input.h"
#include "apps/verbs.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/data/bert/example_store.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/store/self_test.h"
#include "longhaul/data/store/store.h"
#include "longhaul/infer/evaluate.h"
#include "longhaul/session/inference.h"
#include "longhaul/system/progress.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::apps {
namespace {

struct EvalOptions {
  ModelCall call;
  std::string data;
  std::string field = data::kIdsField;
  int64_t seq_len = 0;
  int64_t max_sequences = 0;
  int64_t micro_size = 1;
  bool document_mask = false;
  std::string pack = "stream";
  std::string too_long = "drop";
  bool json = false;
};

/// Returns the length of a sequence. Packed examples have a length of their own.
int64_t length_of(const EvalOptions& options, const ModelConfig& config) {
  if (options.seq_len > 0) return options.seq_len;
  if (data::is_example_store(options.data)) {
    return data::ExampleStoreInfo::read(options.data).form.seq_len;
  }
  return std::min<int64_t>(config.network.max_positions, 2048);
}

using SourcePtr = std::unique_ptr<data::TokenSource>;

SourcePtr open_eval_data(const EvalOptions& options, const ModelConfig& config,
                         int64_t seq_len) {
  SourcePtr source =
      options.pack == "whole"
          ? data::open_whole_rows(options.data, {seq_len, options.too_long == "cut", {}},
                                  /*verify=*/true, options.field)
          : data::open_source(options.data, seq_len, options.document_mask,
                              /*verify=*/true, options.field);
  source->limit_ids(config.vocab_size);
  data::fit_losses(*source, config.description.losses_with_targets(), config.model_type);
  if (tokenizer::find_tokenizer_file(config.source_path.parent_path())) {
    const auto tokenizer = tokenizer::Tokenizer::load(config.source_path.parent_path());
    data::check_tokenizer(*source, tokenizer->fingerprint());
    data::check_self_test(options.data, *tokenizer, "the model's tokenizer");
  }
  infer::require_targets(*source, options.max_sequences, options.data);
  return source;
}

/// Evaluates the model on all of the data; only rank 0 shows how far it has come.
/// Collective.
infer::Evaluation evaluate_all(const EvalOptions& options,
                               const session::Session& session,
                               const data::TokenSource& source) {
  session::StageRunner runner(session.chunks(), session.replicas(),
                              session::stage_options(session));
  system::Progress progress("eval", "sequences");
  infer::EvaluateOptions how;
  how.max_sequences = options.max_sequences;
  how.micro_size = options.micro_size;
  how.micro_batches = 2 * session.config().parallel.pp;
  if (session.world().rank() == 0) how.progress = progress.updates();
  const infer::Evaluation result = infer::evaluate(
      [&](std::vector<data::TokenBatch>& batches) {
        return session::loss_sums(session, runner, batches);
      },
      source, session.mesh().dp(), how);
  progress.finish();
  return result;
}

struct EvalFigures {
  infer::Evaluation result;
  std::vector<std::string> terms;  ///< terms of the loss; one term is the whole loss
  int64_t seq_len = 0;
  double bits_per_byte = 0.0;  ///< 0: not known
  int64_t weight_bytes = 0;    ///< bytes on the rank that holds most
};

void print_json(const EvalFigures& figures, const session::Session& session) {
  const infer::Evaluation& result = figures.result;
  Json json = {{"loss", result.loss()},
               {"perplexity", result.perplexity()},
               {"targets", result.targets[0]},
               {"sequences", result.sequences},
               {"seq_len", figures.seq_len},
               {"layout", session::layout_of(session)},
               {"rank_weight_bytes", figures.weight_bytes}};
  if (figures.bits_per_byte > 0) json["bits_per_byte"] = figures.bits_per_byte;
  for (size_t i = 0; figures.terms.size() > 1 && i < figures.terms.size(); ++i) {
    json["losses"][figures.terms[i]] = result.term(i);
  }
  fmt::print("{}\n", json_text(json));
}

void print_text(const EvalFigures& figures, const session::Session& session) {
  const infer::Evaluation& result = figures.result;
  if (session.world().size() > 1) {
    fmt::print("layout      {}; at most {} of weights on a rank\n",
               session.layout().description().describe(),
               human_bytes(figures.weight_bytes));
  }
  fmt::print("sequences   {} of {} tokens, {} targets\n", grouped(result.sequences),
             figures.seq_len, grouped(result.targets[0]));
  for (size_t i = 0; figures.terms.size() > 1 && i < figures.terms.size(); ++i) {
    fmt::print("{:<15} {:.5f}\n", figures.terms[i], result.term(i));
  }
  fmt::print("loss        {:.5f}\nperplexity  {:.3f}\n", result.loss(),
             result.perplexity());
  if (figures.bits_per_byte > 0) {
    fmt::print("bits/byte   {:.4f}\n", figures.bits_per_byte);
  }
}

/// Evaluates the model and prints its losses on rank 0. Collective.
void evaluate(const EvalOptions& options, const objects::Access& objects,
              const fs::path& path, const World& world) {
  const NamedModel model = open_model(path, objects, *world, options.call.adapter);
  EvalFigures figures;
  figures.seq_len = length_of(options, model.config);
  if (options.micro_size * figures.seq_len > INT32_MAX) {
    fail_input("arguments",
               "--micro-size {} with sequences of {} tokens makes {} tokens; a forward "
               "pass has at most {}",
               options.micro_size, figures.seq_len, options.micro_size * figures.seq_len,
               INT32_MAX);
  }
  const SourcePtr source = open_eval_data(options, model.config, figures.seq_len);
  const session::Session session =
      load_model(model, options.call, asked_parallel(options.call, model, *world),
                 figures.seq_len, options.micro_size, world);
  figures.terms = source->losses();
  figures.result = evaluate_all(options, session, *source);
  figures.weight_bytes = session::most_weight_bytes(session);
  // Bits per byte needs the size of the text that the tokens come from, which only a
  // token store records, for all its tokens. Whole documents leave some of them out.
  const double bytes_per_token =
      options.pack == "whole" ? 0.0 : data::bytes_per_token(options.data);
  if (bytes_per_token > 0) {
    figures.bits_per_byte = figures.result.loss() / std::numbers::ln2 / bytes_per_token;
  }
  if (world->rank() > 0) return;
  if (options.json) {
    print_json(figures, session);
    return;
  }
  fmt::print("model       {}\n", objects.with_addresses(model.source->describe()));
  fmt::print("data        {}\n", objects.with_addresses(source->describe()));
  print_text(figures, session);
}

}  // namespace

void add_eval(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* verb = program.add_subcommand(kEvalVerb.name, kEvalVerb.description);
  add_model_options(*verb, options->call);
  verb->add_option("--cp", options->call.cp,
                   "ranks that share each sequence (parallel.cp)")
      ->check(CLI::Range(1, 1'000'000));
  verb->add_option("--zero", options->call.zero,
                   "3: the ranks of dp and cp share one copy of the weights "
                   "(parallel.zero)")
      ->check(CLI::Range(0, 3));
  verb->add_option("--data", options->data,
                   "token store, save_to_disk directory or packed examples")
      ->required();
  verb->add_option("--field", options->field,
                   "for a save_to_disk directory: the column of the token ids")
      ->capture_default_str();
  verb->add_option("--seq-len", options->seq_len,
                   "tokens per sequence; default: the model's positions, at most 2048")
      ->check(CLI::Range(1, 1'000'000'000));
  verb->add_option("--max-sequences", options->max_sequences,
                   "number of sequences to evaluate, from the first one; default: all")
      ->check(CLI::PositiveNumber);
  verb->add_option("--micro-size", options->micro_size, "sequences per forward pass")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  verb->add_flag("--document-mask", options->document_mask,
                 "attention stops at document boundaries");
  CLI::Option* pack =
      verb->add_option("--pack", options->pack,
                       "whole: each sequence is whole documents, which do not see each "
                       "other, then padding (data.pack)")
          ->check(CLI::IsMember({"stream", "whole"}))
          ->capture_default_str();
  verb->add_option("--too-long", options->too_long,
                   "with --pack whole: a document longer than --seq-len is left out or "
                   "cut (data.too_long)")
      ->check(CLI::IsMember({"drop", "cut"}))
      ->needs(pack)
      ->capture_default_str();
  verb->add_flag("--plain", options->call.plain,
                 "compute with composite operations instead of fused ones");
  verb->add_flag("--json", options->json, "one JSON object on standard output");
  verb->footer(
      "Examples:\n"
      "  longhaul eval runs/cpt --data data/wiki-val --seq-len 2048\n"
      "  mpirun -n 8 longhaul eval runs/cpt --data data/wiki-val --tp 4 --pp 2");
  verb->callback([options, &outcome] {
    const LocalCheckpoint model(options->call.model, outcome.objects);
    options->call.model = model.path();
    options->data = local_input(options->data, outcome.objects);
    outcome.exit_code = with_model(
        options->call.model, outcome.objects,
        std::bind_front(evaluate, std::cref(*options), std::cref(outcome.objects)));
  });
}

}  // namespace longhaul::apps
