#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <string_view>

#include "longhaul/comm/ledger.h"
#include "longhaul/parallel/pipeline/trace.h"
#include "longhaul/run/events.h"

namespace longhaul::session {

/// Records one step at a time: its parts, the blocks of the model, every operation of
/// LibTorch and of this program, and the waits for other ranks. On another device than a
/// CPU, operations have the device's time, from marks in its stream. Costs nothing while
/// no step is recorded. All calls come from the thread that trains; a process records one
/// profile at a time.
class Profile {
 public:
  Profile(at::Device device, int rank, comm::Ledger& ledger);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  bool active() const { return recording_ != nullptr; }
  void begin();
  /// Ends the current part of the step, and begins this one.
  void part(std::string_view name);
  /// Begins the forward or backward of a block, or ends the pass that began last.
  void block(const std::string& name, bool begins);
  /// Returns the timeline for the pipeline's actions; null while no step is recorded.
  parallel::Trace* trace();

  struct Result {
    run::ProfileEvent event;  ///< complete but for the step's number
    std::string timeline;     ///< text of Trace::json()
  };
  /// Ends the recording. Waits for the device.
  Result end();

 private:
  class Recording;
  at::Device device_;
  int rank_;
  comm::Ledger& ledger_;
  std::unique_ptr<Recording> recording_;
};

}  // namespace longhaul::session
