#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/checkpoint/memory/tensors.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/comm/hosts.h"

namespace longhaul::checkpoint {

struct SurveyOptions {
  fs::path dir;     ///< memory_directory()
  std::string run;  ///< the run's key: parts of others do not count
  /// What a state in memory must have to be wanted: the attempt and the step of the
  /// newest checkpoint.
  int min_attempt = 0;
  int64_t min_step = 0;
  int threads = 1;  ///< that compare hashes
  std::string machine = comm::machine_name();
};

/// The newest step of which each part is whole on some machine: of the last attempt that
/// has one. Every byte of it was compared with its hash: a damaged copy is passed over
/// for the other one, and a step with a part that has none for an older step. `notes`
/// receives on rank 0 what was passed over, and what is missing. Collective.
std::optional<MemoryStep> find_in_memory(const SurveyOptions& options,
                                         comm::Communicator& world,
                                         std::vector<std::string>& notes);

}  // namespace longhaul::checkpoint
