#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

namespace longhaul::data {

class MemoryBudget;

/// Bytes of a MemoryBudget, which the destructor gives back.
class Loan {
 public:
  Loan(Loan&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
  Loan& operator=(Loan&&) = delete;
  ~Loan();

 private:
  friend class MemoryBudget;
  Loan(MemoryBudget& budget, uint64_t bytes) : budget_(&budget), bytes_(bytes) {}
  MemoryBudget* budget_;
  uint64_t bytes_;
};

/// A number of bytes that the threads of a build share. Waiting threads are served in the
/// order of their requests, so that no large request waits for ever. Any thread may call
/// it.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t bytes) : total_(bytes) {}

  /// Lends bytes without waiting. Returns nothing when the bytes do not fit or another
  /// thread waits.
  std::optional<Loan> try_lend(uint64_t bytes);
  /// Waits until the bytes fit. A request above the whole budget counts as a request for
  /// the whole budget.
  Loan lend(uint64_t bytes);

 private:
  friend class Loan;
  uint64_t counted(uint64_t bytes) const { return bytes < total_ ? bytes : total_; }
  bool fits(uint64_t bytes) const { return taken_ + counted(bytes) <= total_; }
  void give_back(uint64_t bytes);

  uint64_t total_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t taken_ = 0;
  uint64_t next_ticket_ = 0;
  uint64_t serving_ = 0;
};

}  // namespace longhaul::data
