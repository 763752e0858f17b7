#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "apps/objects/local_input.h"
#include "apps/passport/passport_files.h"
#include "apps/passport/write_passport.h"
#include "apps/program.h"
#include "apps/ranks.h"
#include "apps/verbs.h"
#include "apps/weights_output.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/gguf/gguf_export.h"
#include "longhaul/checkpoint/hf/adapted_model.h"
#include "longhaul/checkpoint/hf/adapted_source.h"
#include "longhaul/checkpoint/hf/averaged_source.h"
#include "longhaul/checkpoint/hf/hf_export.h"
#include "longhaul/checkpoint/hf/model_check.h"
#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/comm/agree.h"
#include "longhaul/objects/address.h"
#include "longhaul/system/progress.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::apps {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 24;

struct ExportCall {
  std::string source;
  WeightsOutput output;
  int threads = 0;
  bool merge = false;
  std::vector<int64_t> average;  ///< steps
  std::string format = "hf";
  bool no_tokenizer = false;

  bool gguf() const { return format == "gguf"; }
  PassportCall passport;
};

/// Opens the run's checkpoints of these steps as their mean. Collective.
checkpoint::SharedSource mean_of(const fs::path& run, const std::vector<int64_t>& steps,
                                 comm::Communicator& world) {
  std::vector<checkpoint::SharedSource> checkpoints;
  for (const fs::path& path : checkpoint::checkpoints_of_steps(run, steps)) {
    checkpoints.push_back(checkpoint::WeightsSource::open(
        path, world, checkpoint::WeightsSource::Files::Held));
  }
  return checkpoint::averaged(std::move(checkpoints));
}

/// Returns what is exported: the source itself, or with --merge the run's base with its
/// adapter added to it. Collective.
checkpoint::SharedSource exported(const checkpoint::SharedSource& source, bool merge,
                                  const objects::Access& objects,
                                  comm::Communicator& world) {
  const bool adapter = checkpoint::holds_adapter(*source);
  if (!merge) {
    if (!adapter) {
      checkpoint::check_model_files(
          source, load_model_config(source->config_path()).description, world);
    }
    return source;
  }
  if (!adapter) {
    fail_config("export",
                "{} holds no adapter that --merge could merge; leave --merge out",
                source->source().path.string());
  }
  const checkpoint::AdaptedModel model =
      checkpoint::with_own_base(source, objects, world);
  return checkpoint::merged(model.source, model.config);
}

/// Tells the user if an output projection differs from the embedding that it is tied to.
/// The export writes both as they are, so that transformers loads the same as from the
/// source.
void tell_tied_head(const checkpoint::WeightsSource& source) {
  try {
    const ModelConfig config = load_model_config(source.config_path());
    if (const auto difference = checkpoint::tied_head_difference(source, config)) {
      fmt::print(
          "note: tie_word_embeddings is true, but {}; both were written as they are, and "
          "transformers does not tie such a model\n",
          *difference);
    }
  } catch (const InputError&) {
    // The config is missing, or its family is one that this program does not read.
  }
}

/// Returns the dtype in which the run of a checkpoint computed, which its config.json
/// names in either of two fields: "bf16", "fp16", or "" for fp32.
std::string computed_dtype(const fs::path& config) {
  const Json json = parse_json(read_text(config, kMaxConfigBytes), config.string());
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!json.is_object() || !json.contains(key)) continue;
    if (json[key] == "bfloat16") return "bf16";
    if (json[key] == "float16") return "fp16";
  }
  return {};
}

/// Tells the user that a checkpoint's weights are master weights, if no --dtype was given
/// and the run computed with narrower ones. The files are then twice as large as those
/// that the run may have begun with.
void tell_dtype(const checkpoint::WeightsSource& source) {
  if (source.source().kind != checkpoint::ModelSource::Kind::Checkpoint) return;
  const std::string computed = computed_dtype(source.config_path());
  const bool wide = std::ranges::any_of(source.tensors(), [](const auto& tensor) {
    return tensor.dtype == format::DType::F32;
  });
  if (computed.empty() || !wide) return;
  fmt::print(
      "note: written in fp32, the dtype of the master weights; the run computed in {0}, "
      "and --dtype {0} writes a model half as large\n",
      computed);
}

/// Throws InputError for options that the format does not have.
void check_format(const ExportCall& call, const CLI::App& verb) {
  const auto given = [&](const char* option) {
    return verb.get_option(option)->count() > 0;
  };
  if (call.gguf()) {
    for (const char* option : {"--shard-size", "--threads", "--passport"}) {
      if (given(option)) fail_input("arguments", "{} is for --format hf", option);
    }
    if (objects::is_address(call.output.out)) {
      fail_input("arguments", "--out: \"{}\": {}; a GGUF file is written to a path",
                 call.output.out, as_address(call.output.out));
    }
    return;
  }
  if (given("--no-tokenizer")) {
    fail_input("arguments", "--no-tokenizer is for --format gguf");
  }
  if (call.output.out.ends_with(".gguf")) {
    fail_input("arguments", "--out: {} is the name of a GGUF file; add --format gguf",
               call.output.out);
  }
}

/// Writes a GGUF file of a source, which `named` names for the person. Collective.
void write_gguf(const checkpoint::SharedSource& source, const std::string& named,
                const ExportCall& options, comm::Communicator& world) {
  using format::GgufType;
  const std::string& dtype = options.output.dtype;
  checkpoint::GgufOptions to;
  if (dtype == "fp32") to.type = GgufType::F32;
  if (dtype == "fp16") to.type = GgufType::F16;
  if (dtype == "bf16") to.type = GgufType::BF16;
  if (dtype == "q8_0") to.type = GgufType::Q8_0;
  to.tokenizer = !options.no_tokenizer;
  system::Progress progress("export", "bytes");
  if (world.rank() == 0) to.progress = progress.updates();
  const system::Stopwatch watch;
  const checkpoint::GgufReport report =
      checkpoint::export_gguf(source, options.output.out, to, world);
  if (world.rank() != 0) return;
  progress.finish();
  for (const std::string& line : report.notes) fmt::print("note: {}\n", line);
  const double seconds = watch.seconds();
  const auto bytes = static_cast<double>(report.bytes);
  fmt::print("exported {} to {}: {}: {}, {} in {:.1f} s ({}/s)\n", named,
             options.output.out, report.what,
             counted(static_cast<int64_t>(report.tensors), "tensor"), human_bytes(bytes),
             seconds, human_bytes(bytes / std::max(seconds, 1e-9)));
}

void run_export(const ExportCall& options, const fs::path& from,
                const objects::OutputPlace& out, const objects::Access& objects,
                const World& ranks) {
  comm::Communicator& world = *ranks;
  using Source = checkpoint::WeightsSource;
  const bool mean = !options.average.empty();
  const checkpoint::SharedSource source =
      mean ? mean_of(from, options.average, world)
           : checkpoint::SharedSource(Source::open(from, world, Source::Files::Held));
  const bool speaks = world.rank() == 0;
  if (speaks && !source->source().note.empty()) {
    fmt::print("{}\n", out.as_named(source->source().note));
  }
  if (speaks) {
    for (const std::string& line : source->ignored()) fmt::print("ignored {}\n", line);
  }
  const checkpoint::SharedSource written =
      mean ? source : exported(source, options.merge, objects, world);
  if (options.output.dtype.empty() && speaks && written == source) tell_dtype(*source);
  const std::string what =
      mean ? fmt::format("the mean of steps {} of {}", fmt::join(options.average, ", "),
                         from.string())
           : source->source().path.string();
  if (options.gguf()) return write_gguf(written, what, options, world);
  system::Progress progress("export", "bytes");
  checkpoint::ExportOptions to = export_options(options.output);
  to.threads = options.threads;
  if (speaks) to.progress = progress.updates();
  const system::Stopwatch watch;
  double written_in = 0.0;  // seconds
  if (options.passport.wanted) {
    if (checkpoint::holds_adapter(*written)) {
      fail_config("export",
                  "--passport describes a whole model, and {} holds an adapter; give "
                  "--merge too",
                  source->source().path.string());
    }
    to.complete = [&](const fs::path& dir) {
      written_in = watch.seconds();
      progress.finish();
      write_passport(dir, source->source(), options.passport, objects, ranks);
    };
  }
  const auto report = checkpoint::export_hf(*written, options.output.out, to, world);
  if (!options.passport.wanted) written_in = watch.seconds();
  if (!speaks) return;
  progress.finish();
  tell_tied_head(*written);
  fmt::print("{}\n", out.as_named(fmt::format(
                         "exported {} to {}", what,
                         describe_written(options.output, report, written_in))));
  if (!options.passport.wanted) return;
  fmt::print("with {}, which {} checks ({:.1f} s)\n", kPassportFile, kCheckerFile,
             watch.seconds() - written_in);
}

void add_passport_options(CLI::App& verb, PassportCall& call) {
  CLI::Option* wanted = verb.add_flag(
      "--passport", call.wanted,
      "write passport.json too: what the weights are, from what they come, and how they "
      "behave; the model is loaded in fp32 for it");
  verb.add_option("--sign", call.key,
                  "sign the passport with this private key of ssh-keygen, or with the "
                  "key that ssh-agent holds for this public one")
      ->needs(wanted);
  verb.add_option("--tp", call.tp, "ranks that split each matrix for the passport")
      ->check(CLI::Range(1, 1'000'000))
      ->needs(wanted);
  verb.add_option("--pp", call.pp, "pipeline stages for the passport")
      ->check(CLI::Range(1, 1'000'000))
      ->needs(wanted);
}

}  // namespace

void add_export(CLI::App& program, Outcome& outcome,
                const std::function<void()>& become_torch_program) {
  const auto options = std::make_shared<ExportCall>();
  CLI::App* verb = program.add_subcommand(
      "export",
      "Writes the weights of a run or checkpoint as a Hugging Face directory or a GGUF "
      "file");
  verb->add_option("source", options->source,
                   "a run (its newest valid checkpoint), a checkpoint or an HF directory")
      ->required();
  add_weights_output(*verb, options->output, /*gguf=*/true);
  verb->add_option("--format", options->format,
                   "hf: a Hugging Face directory; gguf: a file for llama.cpp")
      ->check(CLI::IsMember({"hf", "gguf"}))
      ->capture_default_str();
  verb->add_flag("--no-tokenizer", options->no_tokenizer,
                 "of a GGUF file: write it without the tokenizer");
  verb->add_option(
          "--threads", options->threads,
          "writers of this process, about 64 MiB each; default: one per core, at "
          "most one per shard")
      ->check(CLI::PositiveNumber);
  verb->add_flag(
      "--merge", options->merge,
      "of a run of an adapter: write the whole model, with the adapter added to "
      "the weights of its base, instead of the adapter in PEFT's format");
  verb->add_option(
          "--average", options->average,
          "of a run: write the mean of its checkpoints of these steps, added in "
          "fp64, instead of its newest checkpoint; fp32 unless --dtype says else")
      ->delimiter(',')
      ->excludes("--merge");
  add_passport_options(*verb, options->passport);
  verb->footer(
      "Examples:\n"
      "  longhaul export runs/cpt --out hf/ --dtype bf16\n"
      "  longhaul export runs/cpt --average 800,900,1000 --out hf-mean/\n"
      "  longhaul export runs/cpt --out hf/ --passport --sign ~/.ssh/id_ed25519\n"
      "  srun -N 4 longhaul export runs/cpt --out /shared/hf\n"
      "  longhaul export runs/cpt --format gguf --dtype q8_0 --out cpt.gguf\n"
      "Several ranks share the work of writing the shards. Of a run that trains, the "
      "checkpoint that is newest now is exported.");
  verb->callback([options, verb, &outcome, become_torch_program] {
    check_format(*options, *verb);
    if (options->passport.wanted) become_torch_program();
    std::ranges::sort(options->average);  // the files beside a mean are those of the last
    options->passport.mean_of = options->average;
    if (!options->average.empty() && objects::is_address(options->source)) {
      fail_config(
          "export",
          "--average needs several checkpoints of a run, and of the address {} one "
          "is fetched; copy the run to a local disk",
          options->source);
    }
    const LocalCheckpoint source(options->source, outcome.objects);
    options->source = source.path();
    outcome.exit_code = run_together(outcome.objects, [&](const World& world) {
      const objects::OutputPlace out(options->output.out, outcome.objects,
                                     output_use({.processes = world->size()}));
      options->output.out = out.path();
      if (!options->passport.key.empty()) {
        comm::on_rank_zero(*world, [&] { check_signing_key(options->passport.key); });
      }
      const system::SignalWatch signals;  // an export that a signal stops leaves nothing
      const StopObjectsAtSignal stop_objects(signals, outcome.objects);
      const auto export_from = [&](const fs::path& from) {
        run_export(*options, from, out, outcome.objects, world);
      };
      if (options->average.empty()) {
        checkpoint::with_fall_back(options->source, export_from,
                                   [&](const std::string& line) {
                                     if (world->rank() == 0) say_warning(line);
                                   });
      } else {
        export_from(
            options->source);  // no other checkpoint can stand in for one of these
      }
      out.upload();
    });
  });
}

}  // namespace longhaul::apps
