#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "longhaul/comm/ledger.h"
#include "longhaul/parallel/pipeline/trace.h"
#include "longhaul/run/events.h"

namespace longhaul::train {

/// Records one step at a time: its parts, the blocks of the model, every operation of
/// LibTorch and of ours, and the waits for other ranks. Where the device is no CPU,
/// operations have the device's time, from marks in its stream. While none is recorded it
/// costs nothing. All calls from the thread that trains; one at a time in a process.
class Profile {
 public:
  Profile(at::Device device, int rank, comm::Ledger& ledger);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  bool active() const { return recording_ != nullptr; }
  void begin();
  /// The part of the step before ends, and this one begins.
  void part(std::string_view name);
  /// A block's forward or backward begins, or the one that began last ends.
  void block(const std::string& name, bool begins);
  /// For the pipeline's actions; null while none is recorded.
  parallel::Trace* trace();

  struct Result {
    ProfileEvent event;    ///< but for the step's number
    std::string timeline;  ///< Trace::json()
  };
  /// Waits for the device.
  Result end();

 private:
  class Recording;
  at::Device device_;
  int rank_;
  comm::Ledger& ledger_;
  std::unique_ptr<Recording> recording_;
};

/// The event as lines for the log: the parts, then the operations that take longest.
std::vector<std::string> profile_lines(const ProfileEvent& event);

}  // namespace longhaul::train
