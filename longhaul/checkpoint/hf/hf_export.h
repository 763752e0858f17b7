#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/checkpoint/state_tensor.h"
#include "longhaul/comm/communicator.h"

namespace longhaul::checkpoint {

struct ExportOptions {
  /// Dtype of the exported weights; absent: each tensor keeps its stored dtype.
  std::optional<format::DType> dtype;
  uint64_t shard_bytes = 5'000'000'000;
  /// For families that this program does not read: config.json is copied as it is, except
  /// for the dtype that it names.
  bool any_family = false;
  /// Threads of this rank, each of which writes whole shards; 0: one for each core, at
  /// most one for each shard. A thread holds about 64 MiB.
  int threads = 0;
  /// Called with the bytes that are done and the bytes of all of this rank's shards, for
  /// a progress display, by one thread at a time. May be empty.
  std::function<void(uint64_t, uint64_t)> progress;
  /// Called on every rank with the directory once all files are in it, before it gets its
  /// name. It may add files, and what it throws ends the export. May be empty.
  std::function<void(const fs::path& dir)> complete;
};

struct ExportReport {
  uint64_t tensors = 0;
  uint64_t bytes = 0;  ///< bytes of weights
  int shards = 0;
  std::vector<std::string> files;  ///< names of all files
};

/// Returns whether a source is a checkpoint of an adapter, which has no weights of the
/// base.
bool holds_adapter(const WeightsSource& source);

/// Throws TemporaryError if a SignalWatch has noted a signal. An export then removes its
/// files, as it does after any error.
void stop_if_signalled();

/// Writes a complete Hugging Face directory: model.safetensors, or shards and
/// model.safetensors.index.json; config.json, and the other files that `source` carries.
/// The dtype that config.json names is the export's. If the source is a checkpoint of an
/// adapter, the directory has PEFT's format instead (hf/peft.h) and no config.json.
/// Holds parts of tensors, never the whole model; side files are held from the start.
/// Everything is written to a temporary directory beside `out` and renamed at the end:
/// `out` must be absent or empty, else InputError; nothing is left after a failure. The
/// ranks of `world` share the shards and see the same directory; a failure of one rank is
/// thrown on all. Collective.
ExportReport export_hf(const WeightsSource& source, const fs::path& out,
                       const ExportOptions& options, comm::Communicator& world);
/// Exports by one rank alone.
ExportReport export_hf(const WeightsSource& source, const fs::path& out,
                       const ExportOptions& options = {});

}  // namespace longhaul::checkpoint
