#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/cluster/health/health.h"

namespace longhaul::cluster {

/// One GPU as NVIDIA's driver library describes it. A value that a device or an older
/// driver does not have is left empty.
struct GpuState {
  bool reachable =
      true;  ///< false: the driver counts it, but it does not answer (Xid 79)
  std::string name;
  std::string uuid;
  uint64_t memory_used_bytes = 0;
  uint64_t memory_total_bytes = 0;
  std::optional<double> busy;                  ///< 0 to 1, over the last second or less
  std::optional<uint64_t> uncorrected_errors;  ///< ECC, since the driver was loaded
  std::optional<uint64_t> uncorrected_errors_ever;  ///< ECC, over the board's life
  std::optional<bool> reset_pending;                ///< rows wait to be remapped
  std::optional<bool> remap_failed;
  std::optional<int> celsius;
};

/// Reads again and again how much of the GPUs is used: name, memory and busy alone. The
/// driver's library may hang or crash, so use this class in a process that may do so too
/// (DeviceWatch).
class GpuUse {
 public:
  /// Returns nothing if there is no such library, driver or device. The library stays
  /// loaded.
  static std::optional<GpuUse> open(const std::string& library);
  std::vector<GpuState> read() const;

 private:
  explicit GpuUse(void* library) : library_(library) {}
  void* library_;
};

/// Returns the GPUs of this node; nothing, with `why`, if there is no such library or
/// driver. Loads the library, which stays loaded.
std::optional<std::vector<GpuState>> read_gpus(const std::string& library,
                                               std::string& why);

/// A line of the kernel's log with an Xid, which is NVIDIA's number of a device error.
struct XidLine {
  int number = 0;
  std::string text;
};
/// Returns the lines of a kernel log that have an Xid.
std::vector<XidLine> find_xids(const std::string& kernel_log);
/// Returns whether a device, or the node, has to be reset or replaced after this error.
bool is_fatal_xid(int number);

/// Fails for uncorrected ECC errors, failed or pending remaps, and fatal Xids since the
/// node was started. Is skipped if there is no GPU.
HealthCheck check_gpus(const std::string& library);
/// Judges GPUs, and lines of the kernel's log, that were read before, by the rules of
/// check_gpus().
HealthCheck judge_gpus(const std::vector<GpuState>& gpus,
                       const std::vector<XidLine>& xids);

}  // namespace longhaul::cluster
