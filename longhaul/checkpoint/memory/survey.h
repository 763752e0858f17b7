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
  fs::path dir;     ///< the directory of memory_directory()
  std::string run;  ///< the run's key: parts with other keys do not count
  /// Attempt and step of the newest checkpoint on disk: an older state in memory is not
  /// wanted.
  int min_attempt = 0;
  int64_t min_step = 0;
  int threads = 1;  ///< threads that compare hashes
  std::string machine = comm::machine_name();
};

/// Returns the newest step, of the newest attempt that has one, of which each part is
/// whole on some machine. Every byte of the step was compared with its hash. Where a copy
/// is damaged, the other copy is taken; where a part has no good copy, an older step is
/// taken. `notes` receives on rank 0 what was passed over, and what is missing.
/// Collective.
std::optional<MemoryStep> find_in_memory(const SurveyOptions& options,
                                         comm::Communicator& world,
                                         std::vector<std::string>& notes);

}  // namespace longhaul::checkpoint
