#pragma once

#include <chrono>
#include <functional>

#include "longhaul/base/file.h"
#include "longhaul/comm/communicator.h"

namespace longhaul::train {

/// Thrown when some rank was asked to end before the first step, or within a validation.
struct EndedEarly {};

/// Throws EndedEarly on all ranks where any rank has got a signal. Collective.
void end_if_asked(comm::Communicator& world);

/// What signals and control files ask a run to do. All ranks have the same requests.
struct Requests {
  int signal = 0;      ///< number of a signal that came to any rank; 0: none
  bool stop = false;   ///< the file STOP was there
  bool save = false;   ///< the file SAVE was there, or it is time for a save
  bool pause = false;  ///< the file PAUSE is there
  bool ends() const { return signal != 0 || stop; }
};

/// Looks between steps for signals (system/signals.h), for the control files that people
/// make in the run's directory, and at the clock. Rank 0 looks at most once a second,
/// which is cheap on network file systems too; all ranks learn the result by one small
/// collective.
class ControlFiles {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  /// `tell` is called by rank 0 with the name of each file that was found. A save is
  /// requested whenever `save_minutes` minutes have passed since the last save ended, by
  /// rank 0's `clock`; 0: never.
  ControlFiles(fs::path dir, comm::Communicator& world,
               std::function<void(const char* file)> tell, double save_minutes = 0.0,
               Clock clock = std::chrono::steady_clock::now);

  /// Returns what is asked of the run. Removes STOP and SAVE at once, so that each acts
  /// once; a request to stop stays. Collective.
  Requests ask();
  /// Returns whether the run is to end. Requests that were seen stay until ask() returns
  /// them. Collective.
  bool must_end() { return agree().ends(); }
  /// Notes that a save has ended. The next save by the clock is due `save_minutes` later.
  void saved() { last_save_ = clock_(); }

 private:
  Requests agree();
  void look();
  bool take(const char* file);

  fs::path dir_;
  comm::Communicator& world_;
  std::function<void(const char*)> tell_;
  double save_minutes_;
  Clock clock_;
  Requests seen_;  ///< what rank 0 has seen since the last ask()
  std::chrono::steady_clock::time_point next_look_;
  std::chrono::steady_clock::time_point last_save_;
};

}  // namespace longhaul::train
