#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "apps/verbs/verbs.h"
#include "longhaul/checkpoint/hf/hf_export.h"
#include "longhaul/system/progress.h"

namespace longhaul::apps {

/// What verbs that write a Hugging Face directory have in common.
struct WeightsOutput {
  std::string out;
  std::string dtype;  ///< empty: as stored
  std::string shard_size = "5GB";
};

/// Adds --out, --dtype and --shard-size; `output` must outlive the parsing.
void add_weights_output(CLI::App& verb, WeightsOutput& output);

/// The options for export_hf. InputError for a shard size that is none.
checkpoint::ExportOptions export_options(const WeightsOutput& output);

/// Shows bytes done of all bytes; `progress` must outlive what is returned.
std::function<void(uint64_t, uint64_t)> byte_progress(Progress& progress);

/// "hf/: 291 tensors, 16.1 GB, 4 shards, 9 files in 12.3 s (1.3 GB/s)".
std::string describe_written(const WeightsOutput& output,
                             const checkpoint::ExportReport& report, double seconds);

}  // namespace longhaul::apps
