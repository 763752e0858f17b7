#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "apps/verbs.h"
#include "longhaul/base/progress.h"
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

void run_export(const Options& options) {
  const auto source = checkpoint::WeightsSource::open(options.source);
  if (!source->source().note.empty()) fmt::print("{}\n", source->source().note);
  for (const std::string& line : source->ignored()) fmt::print("ignored {}\n", line);
  Progress progress("export", "bytes");
  checkpoint::ExportOptions export_options;
  export_options.dtype = parse_dtype(options.dtype);
  export_options.shard_bytes = checkpoint::parse_byte_size(options.shard_size);
  export_options.progress = [&](uint64_t done, uint64_t total) {
    progress.update(static_cast<int64_t>(done), static_cast<int64_t>(total));
  };
  const auto start = Clock::now();
  const auto report = checkpoint::export_hf(*source, options.out, export_options);
  progress.finish();
  fmt::print("exported {} to {}: {} tensors, {}, {} {}, {} files in {:.1f} s\n",
             source->source().path.string(), options.out, report.tensors,
             human_bytes(static_cast<double>(report.bytes)), report.shards,
             report.shards == 1 ? "shard" : "shards", report.files.size(),
             seconds_since(start));
}

}  // namespace

void add_export(CLI::App& program, Outcome&) {
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
  verb->footer("Example: longhaul export runs/cpt --out hf/ --dtype bf16");
  verb->callback([options] { run_export(*options); });
}

}  // namespace longhaul::apps
