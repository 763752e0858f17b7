#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/cluster/watch/observed.h"

namespace longhaul::cluster {

/// Why an attempt ended, by what is to be done about it.
enum class FaultKind {
  Settings,       ///< exit 78: a setting or an input is wrong
  Killed,         ///< a process ended without a word: a signal, memory, a crash
  Error,          ///< a rank ended with an error of its own
  Communication,  ///< ranks gave up waiting for others, and nobody else failed
  Hang,           ///< nothing moved for too long
  Node,           ///< a node went away, or failed its health checks
  Launcher,       ///< mpirun or srun failed before any rank began
};
const char* fault_name(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::Launcher;
  int rank = -1;     ///< -1: none in particular
  std::string node;  ///< empty: none in particular
  int64_t step = 0;  ///< the furthest step that any rank was at
  /// An error that time may mend, such as a full disk: not its node's, not the program's.
  bool temporary = false;
  /// One line for people: "rank 17 on n2 (...) killed by signal 9 in step 12 phase
  /// update".
  std::string text;
};

/// How the launcher of an attempt ended, and what it said on the way.
struct LauncherEnd {
  int exit_code = 0;  ///< 128 + n for signal n
  /// Signals by which it said that ranks were killed, by rank; of any rank at -1.
  std::map<int, int> signals = {};
  std::string last_line = {};  ///< of its error output
};

/// Which of the ranks began it: a wrong setting before anything else, then whoever was
/// first to die without a word or to fail by itself; those that only gave up waiting for
/// others come last. Nothing where no rank has failed.
std::optional<Fault> find_fault(const RankList& ranks,
                                const std::optional<LauncherEnd>& launcher);

}  // namespace longhaul::cluster
