#include "apps/weights_output.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/text.h"

namespace longhaul::apps {

void add_weights_output(CLI::App& verb, WeightsOutput& output) {
  verb.add_option("--out", output.out, "the directory to make")->required();
  verb.add_option("--dtype", output.dtype, "dtype of the weights; by default as stored")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  verb.add_option("--shard-size", output.shard_size, "largest size of a file of weights")
      ->capture_default_str();
}

checkpoint::ExportOptions export_options(const WeightsOutput& output) {
  checkpoint::ExportOptions options;
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
