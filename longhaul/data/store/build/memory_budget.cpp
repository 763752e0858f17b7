#include "longhaul/data/store/build/memory_budget.h"

namespace longhaul::data {

bool MemoryBudget::try_take(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (serving_ != next_ticket_ || taken_ + counted(bytes) > total_) return false;
  taken_ += counted(bytes);
  return true;
}

void MemoryBudget::take(uint64_t bytes) {
  std::unique_lock lock(mutex_);
  const uint64_t ticket = next_ticket_++;
  changed_.wait(lock,
                [&] { return serving_ == ticket && taken_ + counted(bytes) <= total_; });
  taken_ += counted(bytes);
  ++serving_;
  changed_.notify_all();
}

void MemoryBudget::give_back(uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    taken_ -= counted(bytes);
  }
  changed_.notify_all();
}

}  // namespace longhaul::data
