#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/system/stopwatch.h"

namespace longhaul::system {

/// Shows on standard error how far long work has come, with the rate and the time left: a
/// bar on a terminal, a line every 10 s elsewhere. Not thread-safe.
class Progress {
 public:
  /// Begins to show work in this unit, in the plural: "sequences". For the unit "bytes"
  /// amounts and rates are printed in kB, MB and so on.
  Progress(std::string what, std::string unit);
  ~Progress();

  /// Shows how much is done of `total`, which is 0 if the total is not known.
  void update(int64_t done, int64_t total);
  /// Returns a function that calls update(), for work that reports in any whole numbers.
  /// This object must outlive it.
  auto updates() {
    return [this](auto done, auto total) {
      update(static_cast<int64_t>(done), static_cast<int64_t>(total));
    };
  }
  /// Clears the bar.
  void finish();

 private:
  std::string what_;
  std::string unit_;
  bool terminal_;
  bool drawn_ = false;
  Stopwatch watch_;
  double shown_ = 0.0;  ///< when it was shown last
};

/// Shows work that has several stages, one Progress after another.
class StagedProgress {
 public:
  /// `title` is the name of the stage's Progress; a new title ends the stage before it.
  void update(const std::string& title, const std::string& unit, int64_t done,
              int64_t total);
  /// Clears the bar.
  void finish() { progress_.reset(); }

 private:
  std::string title_;
  std::optional<Progress> progress_;
};

/// Returns "eval 1,200 of 4,800 sequences (25.0%), 60 sequences/s, 1m 00s left". If
/// `total` is 0, it leaves out what needs a total. `before` is the part of `done` that
/// was done earlier than these `seconds`: neither the rate nor the time left counts it.
std::string progress_line(const std::string& what, const std::string& unit, int64_t done,
                          int64_t total, double seconds, int64_t before = 0);

}  // namespace longhaul::system
