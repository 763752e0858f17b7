#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::faults {

/// A directory of the test's own, in memory where there is such a file system; it is
/// removed at the end.
class FaultDir {
 public:
  FaultDir();
  ~FaultDir();
  FaultDir(const FaultDir&) = delete;
  FaultDir& operator=(const FaultDir&) = delete;
  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }
  /// Removes the content of the directory.
  void clear() const;

 private:
  fs::path path_;
};

/// What to save and what to break.
struct Faulty {
  fs::path dir;          ///< value of LONGHAUL_FAULT_DIR; the run is in dir/run
  std::string rules;     ///< value of LONGHAUL_FAULT
  fs::path record = {};  ///< value of LONGHAUL_FAULT_RECORD; may be empty
  std::string ranks = "2";
  std::string keep = "2";
  std::vector<int64_t> steps = {};
  bool overlap = true;  ///< as in TinyRun
};

/// A save whose end the tool has reported.
struct Said {
  int64_t step = 0;
  int attempt = 0;
  std::string error;  ///< empty where the save was committed
};

struct Ended {
  int code = 0;    ///< exit code
  int signal = 0;  ///< signal that killed the tool; 0: none
  std::vector<Said> said;
  std::string errors;  ///< what the tool has written to standard error
  /// Returns the last save that was reported as committed.
  std::optional<Said> last_committed() const;
};

/// Runs longhaul_save_tool under fault_files.cpp, in the background.
class FaultyTool {
 public:
  explicit FaultyTool(const Faulty& faulty);
  ~FaultyTool();
  FaultyTool(const FaultyTool&) = delete;
  FaultyTool& operator=(const FaultyTool&) = delete;
  pid_t pid() const { return pid_; }
  /// Waits for the end of the tool; must be called once only.
  Ended wait();

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  int errors_ = -1;
};

Ended run_faulty(const Faulty& faulty);

/// Parses "committed 3 1" or "failed 3 1 why"; returns nothing for other lines.
std::optional<Said> parse_said(const std::string& line);

}  // namespace longhaul::faults
