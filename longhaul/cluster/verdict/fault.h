#pragma once

#include <optional>
#include <string>

#include "longhaul/cluster/names.h"
#include "longhaul/cluster/watch/observed.h"
#include "longhaul/run/events.h"

namespace longhaul::cluster {

/// Why an attempt ended, which decides what is done about it.
enum class FaultKind {
  Settings,       ///< exit 78: a setting or an input is wrong
  Killed,         ///< a process ended without a word: by a signal, memory, a crash
  Error,          ///< a rank ended with an error of its own
  Communication,  ///< ranks gave up waiting for others, and no other rank failed
  Hang,           ///< nothing moved for too long
  Node,           ///< a node went away, or failed its health checks
  Launcher,       ///< mpirun or srun failed before any rank began
};
inline constexpr NamesOf<FaultKind, 7> kFaultNames{{run::FaultEvent::kSettings, "killed",
                                                    "error", "communication", "hang",
                                                    "node", "launcher"}};
inline const char* fault_name(FaultKind kind) { return kFaultNames.of(kind); }

/// What ended an attempt, and where. The restart policy decides by this.
struct Fault {
  FaultKind kind = FaultKind::Launcher;
  int rank = -1;          ///< -1: none in particular
  std::string node = {};  ///< empty: none in particular
  int64_t step = 0;       ///< the furthest step that any rank was at
  /// An error that time may mend, such as a full disk: no fault of the node or the
  /// program.
  bool temporary = false;
  /// A temporary error came from ranks of some nodes alone, so that it may be the node's
  /// after all. An error of most nodes has its cause in something that they share.
  bool of_node = false;
  /// One line for people: "rank 17 on n2 (...) killed by signal 9 in step 12 phase
  /// update".
  std::string text = {};
};

/// How the launcher of an attempt ended, and what it said on the way.
struct LauncherEnd {
  int exit_code = 0;  ///< 128 + n for signal n
  /// The signals by which ranks were killed according to the launcher, by rank; -1 stands
  /// for an unknown rank.
  std::map<int, int> signals = {};
  /// A rank's own end with an error, as the launcher tells it.
  struct Exit {
    std::string node;
    int code = 0;
  };
  std::map<int, Exit> exits = {};  ///< by rank
  std::string last_line = {};      ///< last line of its error output
  std::string cause = {};  ///< why it failed, if its lines told (launcher_noise.h)
};

/// Finds the rank that failed first: a wrong setting comes before anything else, then a
/// rank's own error, which other ranks may only have been told. Then comes a rank without
/// a record of which the launcher says that it ended with an error, then the first death
/// without a word. Ranks that only gave up waiting for others come last. Returns nothing
/// if no rank and no launcher has failed.
std::optional<Fault> find_fault(const RankList& ranks,
                                const std::optional<LauncherEnd>& launcher);

}  // namespace longhaul::cluster
