#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "longhaul/checkpoint/hf/hf_export.h"

namespace longhaul::apps {

/// The arguments that are common to the verbs that write a Hugging Face directory.
struct WeightsOutput {
  std::string out;
  std::string dtype;  ///< empty: as stored
  std::string shard_size = "5GB";
};

/// Adds --out, --dtype and --shard-size; `output` must outlive the parsing. With `gguf`
/// the verb writes GGUF files, too, of which --dtype has one more.
void add_weights_output(CLI::App& verb, WeightsOutput& output, bool gguf = false);

/// Returns the options for export_hf. Throws InputError for a shard size that is none,
/// and for a dtype that GGUF alone has.
checkpoint::ExportOptions export_options(const WeightsOutput& output);

/// Returns "hf/: 291 tensors, 16.1 GB, 4 shards, 9 files in 12.3 s (1.3 GB/s)".
std::string describe_written(const WeightsOutput& output,
                             const checkpoint::ExportReport& report, double seconds);

}  // namespace longhaul::apps
