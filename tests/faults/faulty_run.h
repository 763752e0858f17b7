#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::faults {

/// A directory of the test's own, in memory where there is such a file system, removed at
/// its end.
class FaultDir {
 public:
  FaultDir();
  ~FaultDir();
  FaultDir(const FaultDir&) = delete;
  FaultDir& operator=(const FaultDir&) = delete;
  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }
  /// Removes what is in it.
  void clear() const;

 private:
  fs::path path_;
};

/// What to save and what to break.
struct Faulty {
  fs::path dir;          ///< LONGHAUL_FAULT_DIR; the run is dir/run
  std::string rules;     ///< LONGHAUL_FAULT
  fs::path record = {};  ///< LONGHAUL_FAULT_RECORD; may be empty
  std::string ranks = "2";
  std::string keep = "2";
  std::vector<int64_t> steps = {};
  bool overlap = true;  ///< see TinyRun
};

/// A save that the tool said was over.
struct Said {
  int64_t step = 0;
  int attempt = 0;
  std::string error;  ///< empty: committed
};

struct Ended {
  int code = 0;    ///< exit code
  int signal = 0;  ///< that killed it
  std::vector<Said> said;
  std::string errors;  ///< standard error
  /// The last save that was said to be committed.
  std::optional<Said> last_committed() const;
};

/// longhaul_save_tool under fault_files.cpp, in the background.
class FaultyTool {
 public:
  explicit FaultyTool(const Faulty& faulty);
  ~FaultyTool();
  FaultyTool(const FaultyTool&) = delete;
  FaultyTool& operator=(const FaultyTool&) = delete;
  pid_t pid() const { return pid_; }
  /// Waits; call once.
  Ended wait();

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  int errors_ = -1;
};

Ended run_faulty(const Faulty& faulty);

/// "committed 3 1" or "failed 3 1 why"; nothing for another line.
std::optional<Said> parse_said(const std::string& line);

}  // namespace longhaul::faults
