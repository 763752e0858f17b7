#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace longhaul::data {

/// Bytes that many threads share. Whoever waits is served in the order of coming, so that
/// a large request is not overtaken for ever. Any thread may call it.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t bytes) : total_(bytes) {}

  /// Takes without waiting; false when it does not fit or somebody waits already.
  bool try_take(uint64_t bytes);
  /// Waits until it fits; more than the whole counts as the whole.
  void take(uint64_t bytes);
  void give_back(uint64_t bytes);

 private:
  uint64_t counted(uint64_t bytes) const { return bytes < total_ ? bytes : total_; }

  uint64_t total_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t taken_ = 0;
  uint64_t next_ticket_ = 0;
  uint64_t serving_ = 0;
};

/// Takes bytes of a budget, waiting for them, and gives them back at its end.
class Loan {
 public:
  Loan(MemoryBudget& budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {
    budget.take(bytes);
  }
  ~Loan() { budget_.give_back(bytes_); }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

 private:
  MemoryBudget& budget_;
  uint64_t bytes_;
};

}  // namespace longhaul::data
