#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "longhaul/checkpoint/mirror/mirror_store.h"

namespace longhaul::checkpoint {

/// Copies what people make of a run in its directory to MIRROR/run/: pages of `longhaul
/// report` (report.html, NAME-report.html) and finished exports, the config.json of each
/// last. Links out of the directory are followed. A thread of its own does it, since an
/// export may be large: no checkpoint and no results.json waits for it.
/// MIRROR/run/copied.json says which files were copied, with their sizes and times, so
/// that no start copies a file again that has not changed.
class MirrorExports {
 public:
  /// `checkpoints` is left out where it lies in `run_dir`. `tell` receives lines for a
  /// person from the thread. The store must outlive this object.
  MirrorExports(MirrorStore& store, fs::path run_dir, fs::path checkpoints,
                std::function<void(const std::string&)> tell);
  /// Ends the thread after the file that is under way; stop the store before.
  ~MirrorExports();

  /// Lets the thread end after the file that is under way, and say nothing more.
  void end();
  /// Asks the thread to look for new files. Returns at once.
  void look();
  /// Returns whether the thread is looking for files or copying them.
  bool busy() const;

 private:
  /// The names of files in the run's directory that belong together. The last file makes
  /// the others count, so it is copied last.
  using Group = std::vector<std::string>;

  void run();
  void copy_all();
  void copy(const Group& group);
  std::vector<fs::path> find() const;
  void find_below(const fs::path& dir, int depth, std::vector<fs::path>& found) const;
  bool leads_back(const fs::directory_entry& dir) const;
  void note();

  MirrorStore& store_;
  fs::path run_dir_;
  fs::path checkpoints_;
  std::function<void(const std::string&)> tell_;
  /// What is in the mirror: names, and for each the size and time of the local file.
  /// It is absent before copied.json was read.
  std::optional<std::map<std::string, std::string>> copied_;

  std::atomic<bool> stopped_ = false;
  mutable std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  bool wanted_ = false;
  bool at_work_ = false;
  std::thread thread_;
};

}  // namespace longhaul::checkpoint
