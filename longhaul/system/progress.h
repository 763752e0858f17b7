#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace longhaul {

/// How far long work has come, with rate and time left, on standard error: a bar on a
/// terminal, a line every 10 s elsewhere. Not thread-safe.
class Progress {
 public:
  /// `unit` in the plural: "sequences". Rates in bytes are printed as such for "bytes".
  Progress(std::string what, std::string unit);
  ~Progress();

  /// total 0: not known.
  void update(int64_t done, int64_t total);
  /// Clears the bar.
  void finish();

 private:
  std::string what_;
  std::string unit_;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
};

/// "eval 1,200 of 4,800 sequences (25.0%), 60 sequences/s, 1m 00s left"; without what
/// needs a total where it is 0. `before` of what is done was done earlier, and not in
/// these seconds: the rate and the time left do not count it.
std::string progress_line(const std::string& what, const std::string& unit, int64_t done,
                          int64_t total, double seconds, int64_t before = 0);

}  // namespace longhaul
