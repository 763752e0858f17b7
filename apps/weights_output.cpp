#include "apps/weights_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::apps {

void add_weights_output(CLI::App& verb, WeightsOutput& output, bool gguf) {
  verb.add_option(
          "--out", output.out,
          gguf ? "the directory to make, or the GGUF file" : "the directory to make")
      ->required();
  std::vector<std::string> dtypes = {"fp32", "bf16", "fp16"};
  if (gguf) dtypes.emplace_back("q8_0");
  verb.add_option("--dtype", output.dtype,
                  gguf ? "dtype of the weights; by default as stored. q8_0, integers of "
                         "8 bits with a scale for each 32, is for --format gguf"
                       : "dtype of the weights; by default as stored")
      ->check(CLI::IsMember(dtypes));
  verb.add_option("--shard-size", output.shard_size, "largest size of a file of weights")
      ->capture_default_str();
}

checkpoint::ExportOptions export_options(const WeightsOutput& output) {
  checkpoint::ExportOptions options;
  if (output.dtype == "q8_0") {
    throw InputError("arguments", "--dtype q8_0 is for --format gguf");
  }
  if (output.dtype == "fp32") options.dtype = format::DType::F32;
  if (output.dtype == "bf16") options.dtype = format::DType::BF16;
  if (output.dtype == "fp16") options.dtype = format::DType::F16;
  options.shard_bytes = parse_byte_size(output.shard_size);
  return options;
}

std::string describe_written(const WeightsOutput& output,
                             const checkpoint::ExportReport& report, double seconds) {
  const auto bytes = static_cast<double>(report.bytes);
  return fmt::format("{}: {}, {}, {}, {} in {:.1f} s ({}/s)", output.out,
                     counted(static_cast<int64_t>(report.tensors), "tensor"),
                     human_bytes(bytes), counted(report.shards, "shard"),
                     counted(std::ssize(report.files), "file"), seconds,
                     human_bytes(bytes / std::max(seconds, 1e-9)));
}

}  // namespace longhaul::apps
