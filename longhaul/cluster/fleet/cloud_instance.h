#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/cluster/process/background_child.h"

namespace longhaul::cluster {

/// Which instance of which cloud a machine is, as far as the machine tells: a part that
/// is not told is empty.
struct CloudInstance {
  std::string cloud = {};  ///< "EC2", "Azure" ...
  std::string id = {};     ///< "i-0123456789abcdef0"
  std::string type = {};   ///< "p5.48xlarge"
  std::string zone = {};   ///< "us-east-1a"
  /// Returns "EC2 i-0123456789abcdef0, p5.48xlarge, us-east-1a".
  std::string to_text() const;
};

/// Where the kernel shows what the firmware tells.
inline constexpr const char* kFirmwareDir = "/sys/devices/virtual/dmi/id";

/// Returns what the firmware tells, without any request; nothing if the firmware names no
/// cloud.
std::optional<CloudInstance> read_firmware(const fs::path& dir = kFirmwareDir);

/// Asks EC2's metadata service for the parts that the firmware of an instance does not
/// tell, for a second at most. Two environment variables of the service are heeded:
/// AWS_EC2_METADATA_DISABLED=true forbids the requests, and
/// AWS_EC2_METADATA_SERVICE_ENDPOINT names another address.
void ask_metadata(CloudInstance& instance,
                  const std::function<const char*(const char*)>& variable = std::getenv);

/// Prints once, in a process of its own that nobody waits for, which instance of a cloud
/// this machine is. Prints nothing on a machine that is no instance of a cloud.
class InstanceLine {
 public:
  /// `speaker` begins the line.
  explicit InstanceLine(const std::string& speaker);
  /// Collects the process's exit status, if the process has ended.
  void look() { child_.poll(); }

 private:
  BackgroundChild child_;
};

}  // namespace longhaul::cluster
