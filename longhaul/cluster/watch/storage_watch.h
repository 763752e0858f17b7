#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {

/// A question under way: true once the directory has answered, with an error too.
using StorageQuestion = std::function<bool()>;

/// Has a child process make, write and remove a file there: this process never waits for
/// it. A child that waits in the kernel is left behind.
StorageQuestion ask_storage(const fs::path& dir);

struct StorageLimits {
  double answer_seconds = 5.0;   ///< storage that answers does so within this time
  double wait_seconds = 1800.0;  ///< for storage that does not, then the run is restarted
};

enum class StorageState {
  Answers,
  Asked,   ///< no answer yet
  Silent,  ///< none within the time
  Back,    ///< it was silent, and answers now: told once
  GivenUp,
};

/// Tells ranks that wait for storage, all of them alike, from ranks that hang: those go
/// on by themselves when it answers.
class StorageWatch {
 public:
  using Ask = std::function<StorageQuestion(const fs::path& dir)>;
  StorageWatch(std::vector<fs::path> directories, StorageLimits limits, Ask ask)
      : directories_(std::move(directories)), limits_(limits), ask_(std::move(ask)) {}

  /// To be called often. `hang`: nothing moves; only then a question is asked.
  StorageState look(bool hang);
  /// Those that have not answered.
  std::string names() const;
  /// Seconds for which the newest question has waited.
  double asked_seconds() const { return asked_ ? asked_->seconds() : 0.0; }
  /// Since it was silent: the ranks had to wait until then.
  double back_seconds() const {
    return back_ ? back_->seconds() : std::numeric_limits<double>::infinity();
  }
  /// A new start of the workers.
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
  std::optional<Stopwatch> asked_;
  std::optional<Stopwatch> back_;
  bool was_silent_ = false;
};

}  // namespace longhaul::cluster
