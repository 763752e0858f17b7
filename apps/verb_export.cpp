#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "apps/ranks.h"
#include "apps/verbs.h"
#include "longhaul/base/progress.h"
#include "longhaul/base/signals.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/hf_export.h"
#include "longhaul/checkpoint/weights_source.h"

namespace longhaul::apps {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string source;
  std::string out;
  std::string dtype;
  std::string shard_size = "5GB";
  int threads = 0;
};

std::optional<DType> parse_dtype(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (name == "fp32") return DType::F32;
  if (name == "bf16") return DType::BF16;
  return DType::F16;  // CLI11 lets nothing else through
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void run_export(const Options& options, comm::Communicator& world) {
  const SignalWatch signals;  // stopped like this it leaves nothing
  using Source = checkpoint::WeightsSource;
  const auto source = Source::open(options.source, world, Source::Files::Held);
  const bool speaks = world.rank() == 0;
  if (speaks && !source->source().note.empty()) {
    fmt::print("{}\n", source->source().note);
  }
  if (speaks) {
    for (const std::string& line : source->ignored()) fmt::print("ignored {}\n", line);
  }
  Progress progress("export", "bytes");
  checkpoint::ExportOptions export_options;
  export_options.dtype = parse_dtype(options.dtype);
  export_options.shard_bytes = checkpoint::parse_byte_size(options.shard_size);
  export_options.threads = options.threads;
  if (speaks) {
    export_options.progress = [&](uint64_t done, uint64_t total) {
      progress.update(static_cast<int64_t>(done), static_cast<int64_t>(total));
    };
  }
  const auto start = Clock::now();
  const auto report = checkpoint::export_hf(*source, options.out, export_options, world);
  if (!speaks) return;
  progress.finish();
  const double seconds = seconds_since(start);
  const auto bytes = static_cast<double>(report.bytes);
  fmt::print("exported {} to {}: {} tensors, {}, {} {}, {} files in {:.1f} s ({}/s)\n",
             source->source().path.string(), options.out, report.tensors,
             human_bytes(bytes), report.shards, report.shards == 1 ? "shard" : "shards",
             report.files.size(), seconds, human_bytes(bytes / std::max(seconds, 1e-9)));
}

}  // namespace

void add_export(CLI::App& program, Outcome& outcome) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb = program.add_subcommand(
      "export", "Writes the weights of a run or checkpoint as a Hugging Face directory");
  verb->add_option("source", options->source,
                   "a run (its newest valid checkpoint), a checkpoint or an HF directory")
      ->required();
  verb->add_option("--out", options->out, "the directory to make")->required();
  verb->add_option("--dtype", options->dtype, "default: as stored")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  verb->add_option("--shard-size", options->shard_size, "largest file of weights")
      ->capture_default_str();
  verb->add_option(
          "--threads", options->threads,
          "writers of this process, about 64 MiB each; default: one per core, at "
          "most one per shard")
      ->check(CLI::PositiveNumber);
  verb->footer(
      "Examples:\n"
      "  longhaul export runs/cpt --out hf/ --dtype bf16\n"
      "  srun -N 4 longhaul export runs/cpt --out /shared/hf\n"
      "Ranks share the shards. Of a run that goes on: its newest checkpoint as it is "
      "now.");
  verb->callback([options, &outcome] {
    outcome.exit_code =
        run_together([&](comm::Communicator& world) { run_export(*options, world); });
  });
}

}  // namespace longhaul::apps
