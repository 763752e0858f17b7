#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numbers>
#include <span>

#include "apps/named_model.h"
#include "apps/objects/local_input.h"
#include "apps/serve/text_model.h"
#include "apps/verbs.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/data/bert/example_store.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/store/self_test.h"
#include "longhaul/data/store/store.h"
#include "longhaul/infer/evaluate.h"
#include "longhaul/infer/task_set.h"
#include "longhaul/session/inference.h"
#include "longhaul/session/task_answers.h"
#include "longhaul/system/progress.h"
#include "longhaul/tensor/device_limits.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::apps {
namespace {

struct EvalOptions {
  ModelCall call;
  std::string data;
  std::vector<std::string> tasks;
  std::string out;
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
  if (!options.data.empty() && data::is_example_store(options.data)) {
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
  if (const auto tokenizer = tokenizer_beside(config)) {
    data::check_tokenizer(*source, tokenizer->fingerprint());
    data::check_self_test(options.data, *tokenizer, "the model's tokenizer");
  }
  infer::require_targets(*source, options.max_sequences, options.data);
  return source;
}

/// Returns how rows are evaluated; only rank 0 shows how far it has come.
infer::EvaluateOptions evaluate_options(const EvalOptions& options,
                                        const session::Session& session,
                                        system::Progress& progress) {
  infer::EvaluateOptions how;
  how.max_sequences = options.max_sequences;
  how.micro_size = options.micro_size;
  how.micro_batches = 2 * session.config().parallel.pp;
  how.full = !tensor::limits_of(session.device()).any_shapes;
  if (session.world().rank() == 0) how.progress = progress.updates();
  return how;
}

/// Evaluates the model on all of the data. Collective.
infer::Evaluation evaluate_all(const EvalOptions& options,
                               const session::Session& session,
                               const data::TokenSource& source) {
  session::StageRunner runner(session.chunks(), session.replicas(),
                              session::stage_options(session));
  system::Progress progress("eval", "sequences");
  const infer::EvaluateOptions how = evaluate_options(options, session, progress);
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

/// Returns a line for each question: what the model answered, and the score.
std::string question_lines(const infer::TaskSet& set,
                           std::span<const data::TaskAnswer> answers) {
  std::string lines;
  for (const data::TaskQuestion& question : set.task.questions) {
    Json json = {{"task", set.name}, {"doc_id", question.doc_id}};
    for (size_t i = question.first; i < question.end; ++i) {
      json["log_probs"].push_back(answers[i].log_prob);
      json["is_greedy"].push_back(answers[i].is_greedy);
    }
    const std::vector<double> scores = data::scores_of(set.task, question, answers);
    for (size_t i = 0; i < scores.size(); ++i) json[set.task.metrics[i]] = scores[i];
    lines += json_text(json) + "\n";
  }
  return lines;
}

/// Measures the model on tasks and prints their figures on rank 0. Collective.
void evaluate_tasks(const EvalOptions& options, const objects::Access& objects,
                    const NamedModel& model, int64_t seq_len, const World& world) {
  const auto tokenizer = tokenizer_beside(model.config);
  std::vector<infer::TaskSet> sets;
  for (const std::string& path : options.tasks) {
    sets.push_back(infer::open_task(*world, infer::task_name_of(path), path,
                                    {tokenizer.get(), seq_len, model.config.vocab_size,
                                     model.config.description.is_causal()}));
  }
  const session::Session session =
      load_model(model, options.call, asked_parallel(options.call, model, *world),
                 seq_len, options.micro_size, world);
  const bool speaks = world->rank() == 0;
  const bool in_words = speaks && !options.json;
  if (in_words) {
    fmt::print("model       {}\n", objects.with_addresses(model.source->describe()));
  }
  Json json = {{"seq_len", seq_len}, {"layout", session::layout_of(session)}};
  std::string lines;
  for (const infer::TaskSet& set : sets) {
    system::Progress progress(set.name, "rows");
    const std::vector<data::TaskAnswer> answers = session::answer_requests(
        session, *set.rows, evaluate_options(options, session, progress));
    progress.finish();
    if (!speaks) continue;
    const auto figures = data::task_figures(set.task, answers);
    lines += question_lines(set, answers);
    json["tasks"].push_back({{"name", set.name},
                             {"questions", set.task.questions.size()},
                             {"metrics", run::to_json(figures)}});
    if (in_words) {
      fmt::print("{:<11} {}\n            {}\n", set.name, run::describe(figures),
                 set.words);
    }
  }
  if (!speaks) return;
  if (options.json) fmt::print("{}\n", json_text(json));
  if (!options.out.empty()) write_text_atomic(options.out, lines);
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
  if (!options.tasks.empty()) {
    return evaluate_tasks(options, objects, model, figures.seq_len, world);
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
                   "token store, save_to_disk directory or packed examples");
  CLI::Option* tasks =
      verb->add_option("--tasks", options->tasks,
                       "files of samples that lm-eval --model dummy --log_samples wrote: "
                       "measures these tasks (validation.tasks)");
  verb->add_option("--out", options->out,
                   "with --tasks, file of JSON lines for what the model answers to each "
                   "question")
      ->needs(tasks);
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
  for (const char* of_data : {"--data", "--field", "--max-sequences", "--document-mask",
                              "--pack", "--too-long"}) {
    tasks->excludes(verb->get_option(of_data));
  }
  verb->add_flag("--plain", options->call.plain,
                 "compute with composite operations instead of fused ones");
  verb->add_flag("--json", options->json, "one JSON object on standard output");
  verb->footer(
      "Examples:\n"
      "  longhaul eval runs/cpt --data data/wiki-val --seq-len 2048\n"
      "  longhaul eval runs/cpt --tasks samples_arc_easy_*.jsonl --out answers.jsonl\n"
      "  mpirun -n 8 longhaul eval runs/cpt --data data/wiki-val --tp 4 --pp 2");
  verb->callback([options, &outcome] {
    if (options->data.empty() && options->tasks.empty()) {
      fail_input("arguments",
                 "give --data STORE for a loss, or --tasks FILE for tasks of lm-eval");
    }
    const LocalCheckpoint model(options->call.model, outcome.objects);
    options->call.model = model.path();
    options->data = local_input(options->data, outcome.objects);
    for (std::string& task : options->tasks) {
      task = local_input(task, outcome.objects);
    }
    outcome.exit_code = with_model(
        options->call.model, outcome.objects,
        std::bind_front(evaluate, std::cref(*options), std::cref(outcome.objects)));
  });
}

}  // namespace longhaul::apps
