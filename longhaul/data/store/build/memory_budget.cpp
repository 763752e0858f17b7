#include "longhaul/data/store/build/pieces.h"

namespace longhaul::data {

Loan::~Loan() {
  if (budget_ != nullptr) budget_->give_back(bytes_);
}

std::optional<Loan> MemoryBudget::try_lend(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (serving_ != next_ticket_ || !fits(bytes)) return std::nullopt;
  taken_ += counted(bytes);
  return Loan(*this, bytes);
}

Loan MemoryBudget::lend(uint64_t bytes) {
  std::unique_lock lock(mutex_);
  const uint64_t ticket = next_ticket_++;
  changed_.wait(lock, [&] { return serving_ == ticket && fits(bytes); });
  taken_ += counted(bytes);
  ++serving_;
  changed_.notify_all();
  return {*this, bytes};
}

void MemoryBudget::give_back(uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    taken_ -= counted(bytes);
  }
  changed_.notify_all();
}

}  // namespace longhaul::data
