#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {

/// A question under way. Returns true once the directory has answered, also by an error.
using StorageQuestion = std::function<bool()>;

/// Has a child process make, write and remove a file in the directory. This process never
/// waits for the child. A child that waits in the kernel is left behind.
StorageQuestion ask_storage(const fs::path& dir);

struct StorageLimits {
  double answer_seconds = 5.0;  ///< storage that answers does so within this time
  double wait_seconds =
      1800.0;  ///< patience with silent storage; then the run is restarted
};

enum class StorageState {
  Answers,
  Asked,    ///< there is no answer yet
  Silent,   ///< there was no answer within answer_seconds
  Back,     ///< it was silent and answers now; returned once
  GivenUp,  ///< it has been silent for wait_seconds
};

/// Tells ranks that hang from ranks that wait for storage, which go on by themselves when
/// it answers. The supervisor owns one.
class StorageWatch {
 public:
  using Ask = std::function<StorageQuestion(const fs::path& dir)>;
  StorageWatch(std::vector<fs::path> directories, StorageLimits limits, Ask ask)
      : directories_(std::move(directories)), limits_(limits), ask_(std::move(ask)) {}

  /// Call it often. `hang` says that no rank moves; only then the storage is asked.
  StorageState look(bool hang);
  /// Returns the directories that have not answered.
  std::string names() const;
  /// Returns for how many seconds the question under way has waited.
  double asked_seconds() const { return asked_ ? asked_->seconds() : 0.0; }
  /// Returns the seconds since the storage came back; infinity if it was never silent.
  double back_seconds() const {
    return back_ ? back_->seconds() : std::numeric_limits<double>::infinity();
  }
  /// Forgets all questions, for a new start of the workers.
  void restart();

 private:
  struct Open {
    fs::path dir;
    StorageQuestion answered;
  };
  std::vector<fs::path> directories_;
  StorageLimits limits_;
  Ask ask_;
  std::vector<Open> open_;
  std::optional<system::Stopwatch> asked_;
  std::optional<system::Stopwatch> back_;
  bool was_silent_ = false;
};

}  // namespace longhaul::cluster
