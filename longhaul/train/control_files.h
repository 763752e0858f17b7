#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/comm/communicator.h"

namespace longhaul::train {

/// What signals and files ask a run to do; the same on all ranks.
struct Requests {
  int signal = 0;      ///< the number of one that came to any rank
  bool stop = false;   ///< the file STOP was there
  bool save = false;   ///< the file SAVE was there, or it is time for a save
  bool pause = false;  ///< the file PAUSE is there
  bool ends() const { return signal != 0 || stop; }
};

/// Looks, between steps, for signals (base/signals.h), for the files that people make
/// in the run's directory, and at the clock. Rank 0 looks at most once a second, which is
/// cheap on network file systems too; all ranks learn of it by one small collective.
class ControlFiles {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  /// `tell`: rank 0 says what it found, by file name. `save_minutes`: a save is asked for
  /// whenever so many have passed since the last one ended, by rank 0's `clock`; 0:
  /// never.
  ControlFiles(fs::path dir, comm::Communicator& world,
               std::function<void(const char* file)> tell, double save_minutes = 0.0,
               Clock clock = std::chrono::steady_clock::now);

  /// Takes STOP and SAVE away at once, so that they act once; STOP stays asked for.
  /// Collective.
  Requests ask();
  /// Training goes on after a save now, whoever asked for the save.
  void saved() { last_save_ = clock_(); }

 private:
  void look();
  bool take(const char* file);

  fs::path dir_;
  comm::Communicator& world_;
  std::function<void(const char*)> tell_;
  double save_minutes_;
  Clock clock_;
  Requests seen_;  ///< rank 0, since the last ask()
  std::chrono::steady_clock::time_point next_look_;
  std::chrono::steady_clock::time_point last_save_;
};

}  // namespace longhaul::train
