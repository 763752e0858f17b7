#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/run/run_status.h"

namespace longhaul::cluster {

/// Tells how much of a node's devices is used. A small child process asks the driver's
/// library once a second, so that a library that hangs or crashes costs these numbers and
/// nothing else. The child ends with the thread that made this object. All calls come
/// from one thread.
class DeviceWatch {
 public:
  /// Starts the child: call it early, before there are threads. With an empty `library`
  /// there is no child and look() returns nothing.
  explicit DeviceWatch(const std::string& library);
  ~DeviceWatch();

  /// Returns the newest numbers; nothing if there are no devices or the child has said
  /// nothing for ten seconds. Never waits.
  std::vector<run::RunStatus::Device> look();

 private:
  void take_line(const std::string& line);
  void reap();

  pid_t child_ = -1;
  Descriptor from_child_;
  std::string rest_;  ///< the start of a line that has not ended
  std::vector<run::RunStatus::Device> devices_;
  double heard_ = 0.0;
};

}  // namespace longhaul::cluster
