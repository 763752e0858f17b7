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
  /// Dtype of the weights; nothing keeps each tensor's stored dtype.
  std::optional<DType> dtype;
  uint64_t shard_bytes = 5'000'000'000;
  /// Models of families that this program does not read: config.json is carried as it is,
  /// with the dtype named in it.
  bool any_family = false;
  /// Threads of this rank, each of which writes whole shards; 0: one per core, at most
  /// one per shard. Each holds about 64 MiB.
  int threads = 0;
  /// Called with bytes done and bytes in all of this rank's shards, for a progress
  /// display, by one thread at a time. May be empty.
  std::function<void(uint64_t, uint64_t)> progress;
};

struct ExportReport {
  uint64_t tensors = 0;
  uint64_t bytes = 0;  ///< of weights
  int shards = 0;
  std::vector<std::string> files;  ///< all names
};

/// Writes a complete Hugging Face directory: model.safetensors, or shards and
/// model.safetensors.index.json; config.json and what else `source` carries (the dtype
/// named in config.json follows the export's). Streams: holds windows of tensors, never
/// the model; side files are held from the start. Everything goes to a temporary
/// neighbour first and is renamed at the end: `out` must be absent or empty (InputError);
/// on failure nothing is left. The ranks of `world` share the shards and see the same
/// directory; a failure of one is thrown on all. Collective.
ExportReport export_hf(const WeightsSource& source, const fs::path& out,
                       const ExportOptions& options, comm::Communicator& world);
/// The same by one rank.
ExportReport export_hf(const WeightsSource& source, const fs::path& out,
                       const ExportOptions& options = {});

}  // namespace longhaul::checkpoint
