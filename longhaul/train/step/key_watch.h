#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/device/compiled_keys.h"
#include "longhaul/system/log.h"

namespace longhaul::train {

/// Returns a line about a key that was compiled late: its name, and that of the last key
/// of the same operation among `earlier`, where there is one.
std::string line_of_late_key(const device::CompiledKey& key,
                             const std::vector<device::CompiledKey>& earlier);

/// Tells what a device's compiler makes while a run trains. After the first two steps of
/// a start it tells how much that was. Afterwards no step is to compile, and each key is
/// a warning. Does nothing where the plug-in does not list its keys, so that a step costs
/// nothing on other devices.
class KeyWatch {
 public:
  /// The steps of a start in which all keys of a step are compiled.
  static constexpr int64_t kFirstSteps = 2;

  /// Tells the log of what was compiled since the last call. `done` is the number of
  /// steps that this start has done. Collective where the plug-in lists its keys.
  void look(int64_t done, comm::Communicator& world, system::Logger& log);

 private:
  std::vector<device::CompiledKey> known_;
  bool told_ = false;
};

}  // namespace longhaul::train
