#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "apps/objects/local_input.h"
#include "apps/verbs.h"
#include "apps/verbs/import_flags.h"
#include "apps/weights_output.h"
#include "longhaul/base/build_info.h"
#include "longhaul/base/error.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/gguf/gguf_source.h"
#include "longhaul/checkpoint/hf/hf_export.h"
#include "longhaul/imports/foreign_source.h"
#include "longhaul/imports/to_checkpoint.h"
#include "longhaul/objects/address.h"
#include "longhaul/run/files.h"
#include "longhaul/system/progress.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/train/history/history.h"

namespace longhaul::apps {
namespace {

struct ImportCall {
  std::string source;
  std::string config;
  std::string format = "hf";
  std::string kv_order;
  std::string hardware;
  std::string fused_rows;
  std::string tokenizer;
  WeightsOutput output;

  bool from_gguf() const { return source.ends_with(".gguf"); }
  FlagsCall flags;
  bool with_flags = false;
};

void print_found(const imports::ForeignModel& model, const objects::Access& objects) {
  const auto print = [&](const std::string& line) {
    fmt::print("{}\n", objects.with_addresses(line));
  };
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : model.weights) bytes += tensor.bytes();
  print(fmt::format("{}: {}", model.path.string(), model.what));
  print(fmt::format("model: {} ({}), {}, {}", model.config.model_type,
                    model.config.path.string(),
                    counted(std::ssize(model.weights), "tensor"), human_bytes(bytes)));
  for (const std::string& line : model.notes) print(line);
  for (const std::string& line : model.ignored) print("passed over: " + line);
}

void print_left_behind(const imports::ForeignModel& model, bool with_moments) {
  if (with_moments) {
    fmt::print("came along: weights{}, both moments and the count of {} updates\n",
               model.masters.empty() ? "" : " (masters)", grouped(*model.updates));
    fmt::print("did not come along: position in the data, schedule\n");
  } else {
    fmt::print(
        "came along: weights. Did not come along: optimizer state ({}), position in "
        "the data, schedule\n",
        model.has_optimizer
            ? "the source has it; --format checkpoint imports it where it can be mapped"
            : "the source has none");
  }
}

void import_hf(const imports::ForeignModel& model, const ImportCall& options,
               const objects::OutputPlace& out) {
  const system::SignalWatch signals;  // an import that a signal stops leaves nothing
  const imports::ForeignSource source(model);
  system::Progress progress("import", "bytes");
  checkpoint::ExportOptions to = export_options(options.output);
  to.threads = 1;  // foreign files are read by one thread
  to.any_family = !model.config.model;
  to.progress = progress.updates();
  const system::Stopwatch watch;
  const auto report = checkpoint::export_hf(source, options.output.out, to);
  progress.finish();
  print_left_behind(model, false);
  fmt::print("imported to {}\n",
             out.as_named(describe_written(options.output, report, watch.seconds())));
}

void import_checkpoint(const imports::ForeignModel& model, const ImportCall& options,
                       const objects::OutputPlace& out) {
  train::History history;
  history.step = model.step.value_or(*model.updates);
  history.updates = *model.updates;
  history.counts =
      optim::UpdateCounts(history.updates, imports::fewer_updates_of_parameters(model));
  history.fingerprint = Json::object();
  system::Progress progress("import", "bytes");
  imports::ToCheckpointOptions to;
  to.step = history.step;
  to.build = build_info().one_line();
  to.state = history.to_json();
  to.progress = progress.updates();
  const system::Stopwatch watch;
  const uint64_t bytes = imports::write_foreign_checkpoint(model, options.output.out, to);
  progress.finish();
  print_left_behind(model, true);
  const std::string made = fmt::format("{}/{}", out.as_named(options.output.out),
                                       run::step_directory_name(to.step));
  fmt::print(
      "imported to {}: {} in {:.1f} s; to go on from it{}: [checkpoint] resume = "
      "\"{}\"\n",
      made, human_bytes(bytes), watch.seconds(),
      out.is_address()
          ? ", copy it to a file system first, since no address is taken there"
          : "",
      out.is_address() ? "THE COPY" : made);
}

/// Turns a GGUF file into a Hugging Face directory.
void import_gguf(const ImportCall& options, const objects::OutputPlace& out) {
  const system::SignalWatch signals;  // an import that a signal stops leaves nothing
  fs::path beside = fs::absolute(options.output.out).lexically_normal();
  if (!beside.has_filename()) beside = beside.parent_path();
  const ScratchPath scratch(beside.string() + fmt::format(".config.{}", ::getpid()));
  const checkpoint::GgufSource source(options.source, options.config, scratch.path(),
                                      options.tokenizer);
  fmt::print("{}: GGUF, {}\n", options.source, source.what());
  if (options.tokenizer.empty()) {
    fmt::print("note: no tokenizer goes along; --tokenizer DIR names one\n");
  }
  system::Progress progress("import", "bytes");
  checkpoint::ExportOptions to = export_options(options.output);
  to.progress = progress.updates();
  const system::Stopwatch watch;
  const auto report = checkpoint::export_hf(source, options.output.out, to);
  progress.finish();
  fmt::print("imported to {}\n",
             out.as_named(describe_written(options.output, report, watch.seconds())));
}

/// Throws InputError for options that are not for sources of this kind.
void check_kind(const ImportCall& call) {
  if (!call.from_gguf()) {
    if (call.tokenizer.empty()) return;
    throw InputError("arguments",
                     "--tokenizer is for a GGUF file; of other sources the tokenizer "
                     "beside config.json goes along (--config)");
  }
  if (call.format != "hf") {
    throw InputError("arguments", "a GGUF file has no optimizer state; --format hf");
  }
  for (const auto& [name, value] :
       {std::pair{"--kv-order", &call.kv_order}, std::pair{"--hardware", &call.hardware},
        std::pair{"--query-key-value", &call.fused_rows}}) {
    if (!value->empty()) fail_input("arguments", "{} is not for a GGUF file", name);
  }
}

void run_import(ImportCall options, const objects::Access& objects) {
  const bool to_checkpoint = options.format == "checkpoint";
  check_kind(options);
  if (to_checkpoint && !options.output.dtype.empty()) {
    throw InputError("arguments", "--dtype is for --format hf; a checkpoint keeps fp32");
  }
  export_options(options.output);  // a wrong one is told before a long read
  const objects::OutputPlace out(options.output.out, objects, output_use({}));
  options.output.out = out.path();
  options.source = local_input(options.source, objects);
  options.config = local_input(options.config, objects);
  if (options.from_gguf()) {
    import_gguf(options, out);
    return out.upload();
  }
  imports::ForeignOptions from;
  from.config = options.config;
  from.want_optimizer = to_checkpoint;
  if (options.kv_order == "tiled") from.kv_order = imports::KvOrder::Tiled;
  if (options.kv_order == "repeated") from.kv_order = imports::KvOrder::Repeated;
  if (options.hardware == "trn1") from.hardware = imports::Hardware::Trn1;
  if (options.hardware == "trn2") from.hardware = imports::Hardware::Trn2;
  if (options.fused_rows == "blocks") from.fused_rows = imports::FusedRows::Blocks;
  if (options.fused_rows == "heads") from.fused_rows = imports::FusedRows::Heads;
  const imports::ForeignModel model = imports::open_foreign(options.source, from);
  print_found(model, objects);
  if (to_checkpoint) {
    import_checkpoint(model, options, out);
  } else {
    import_hf(model, options, out);
  }
  out.upload();
}

void import_what_is_given(ImportCall& call, const objects::Access& objects) {
  if (call.with_flags) {
    if (objects::is_address(call.output.out)) {
      fail_input("arguments", "--out: \"{}\": {}; with --flags this is a run file",
                 call.output.out, as_address(call.output.out));
    }
    call.flags.out = call.output.out;
    return import_flags(call.flags);
  }
  if (call.source.empty()) throw CLI::RequiredError("source");
  if (call.output.out.empty()) throw CLI::RequiredError("--out");
  run_import(call, objects);
}

/// Adds --flags, with which only --out and --ranks may be given.
void add_flags(CLI::App& verb, ImportCall& call) {
  CLI::Option* const flags = verb.add_option(
      "--flags", call.flags.flags,
      "in place of a source: the command line, in quotes, that starts another system's "
      "training, or a file that holds it; or a torchtitan TOML, or a YAML of "
      "nanotron, axolotl, TRL or LLaMA-Factory. The run file for it is printed, or "
      "written to --out");
  for (CLI::Option* other : verb.get_options()) {
    const std::string name = other->get_name();
    if (other != flags && name != "--out" && name != "--help") flags->excludes(other);
  }
  verb.get_option("--out")->required(false);
  verb.add_option(
          "--ranks", call.flags.ranks,
          "with --flags: how many ranks the run has, where the command line does not "
          "say it")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->needs(flags);
}

}  // namespace

void add_import(CLI::App& program, Outcome& outcome) {
  const auto options = std::make_shared<ImportCall>();
  CLI::App* verb = program.add_subcommand(
      "import",
      "Turns a checkpoint of another program into a Hugging Face directory, or its flags "
      "into a run file");
  verb->add_option("source", options->source,
                   "a PyTorch state dict (.pt, .pth, .bin, sharded .bin), a "
                   "neuronx-distributed checkpoint (a step, a directory of steps, rank "
                   "files), a torch.distributed.checkpoint directory (SMP's too), or a "
                   "GGUF file (.gguf)");
  add_weights_output(*verb, options->output);
  verb->add_option(
      "--config", options->config,
      "the model's Hugging Face directory (tokenizer and generation config come along) "
      "or its config.json; by default the one beside the source");
  verb->add_option("--tokenizer", options->tokenizer,
                   "of a GGUF file: the directory whose tokenizer goes along");
  verb->add_option("--format", options->format,
                   "hf: a Hugging Face directory; checkpoint: a longhaul checkpoint with "
                   "the optimizer's state, to go on training from")
      ->check(CLI::IsMember({"hf", "checkpoint"}))
      ->capture_default_str();
  verb->add_option(
          "--kv-order", options->kv_order,
          "order of the copies of key heads (NxD's kv_replicator), where comparing the "
          "copies does not tell: tiled (A B A B) or repeated (A A B B)")
      ->check(CLI::IsMember({"tiled", "repeated"}));
  verb->add_option(
          "--hardware", options->hardware,
          "hardware for which NxD made the shards (its converter's --hw_backend), where "
          "the shards hold key heads several times in tiled order: with trn1 the query "
          "heads were moved to match, with trn2 they were not")
      ->check(CLI::IsMember({"trn1", "trn2"}));
  verb->add_option(
          "--query-key-value", options->fused_rows,
          "how query_key_value or key_value of Megatron's names hold the rows of their "
          "matrices: blocks (one matrix after another, as NxD's converter with "
          "--model_style megatron), or heads (head by head, as NxD-training trains them)")
      ->check(CLI::IsMember({"blocks", "heads"}));
  add_flags(*verb, *options);
  verb->footer(
      "longhaul's own reader reads pickles as data: it cannot run code, and its process "
      "has limits.\n"
      "Examples:\n"
      "  longhaul import llama.pt --config models/Llama-3-8B --out hf/\n"
      "  longhaul import nxd_ckpts/ --config models/Llama-3-70B --out hf/ --dtype bf16\n"
      "  longhaul import nxd_ckpts/step_5000 --config models/Llama-3-70B --format "
      "checkpoint --out runs/from-nxd\n"
      "  longhaul import model.gguf --tokenizer models/Llama-3-8B --out hf/\n"
      "  longhaul import smp/llama_v2-1000steps --config models/Llama-2-7B --out hf/\n"
      "  longhaul import --flags 'torchrun --nproc_per_node 32 run_llama_nxd.py --lr "
      "1e-4 ...' > run.toml\n"
      "  longhaul import --flags llama3_8b.toml --ranks 64 --out run.toml");
  verb->callback([options, verb, &outcome] {
    options->with_flags = verb->get_option("--flags")->count() > 0;
    import_what_is_given(*options, outcome.objects);
  });
}

}  // namespace longhaul::apps
