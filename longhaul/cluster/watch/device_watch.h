#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "longhaul/cluster/control/socket.h"
#include "longhaul/run/run_status.h"

namespace longhaul::cluster {

/// How much of a node's devices is used, from a small process of its own that asks the
/// driver's library once a second: a library that hangs or crashes costs these figures
/// and nothing else. It ends with the thread that made this object. One thread.
class DeviceWatch {
 public:
  /// Starts the process; make it early, before threads. Empty: none, look() has nothing.
  explicit DeviceWatch(const std::string& library);
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  /// The newest figures; nothing where there are no devices or they have not been heard
  /// of for ten seconds. Never waits.
  std::vector<RunStatus::Device> look();

 private:
  void take_line(const std::string& line);
  void reap();

  pid_t child_ = -1;
  Descriptor from_child_;
  std::string rest_;  ///< of a line that has not ended
  std::vector<RunStatus::Device> devices_;
  double heard_ = 0.0;
};

}  // namespace longhaul::cluster
