#pragma once

#include <optional>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/system/lossy_writer.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {

/// Copies what a launcher writes to this process's standard output, if that is a pipe or
/// a socket. Without it mpirun would end all ranks when the reader goes (`launch ... |
/// head`). A reader that is slow makes the launcher wait, and never this process. What a
/// reader does not take for a second is dropped and counted, so that the launcher goes
/// on. Elsewhere (a terminal, a file) the launcher writes there itself. All calls come
/// from one thread.
class OutputRelay {
 public:
  /// Throws TemporaryError if a pipe is needed and cannot be had.
  OutputRelay();

  /// Returns the descriptor that becomes the launcher's output; -1: the launcher shares
  /// this process's output.
  int launcher_end() const { return pipe_.write.get(); }
  /// Closes this process's copy of launcher_end(), once the launcher has its own.
  void started() { pipe_.write.reset(); }
  /// Copies what can be copied without waiting.
  void copy();
  /// Copies the rest after the launcher's end; gives up on a reader that takes nothing
  /// for this many seconds.
  void finish(double patience_seconds);

 private:
  bool fill();
  bool put();

  Pipe pipe_;
  std::string rest_;  ///< what was read and not yet written
  system::LossyWriter output_;
  std::optional<system::Stopwatch> stuck_;  ///< since when the reader takes nothing
  bool unread_ = false;                     ///< the reader has gone
};

}  // namespace longhaul::cluster
