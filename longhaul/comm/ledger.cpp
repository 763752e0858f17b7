#include "longhaul/comm/ledger.h"

#include <fmt/format.h>

namespace longhaul::comm {

void Ledger::attach(std::shared_ptr<run::RankRecord> record) {
  record_ = std::move(record);
  if (record_ && !phase_.empty()) record_->set(phase_, step_);
}

void Ledger::set(std::string_view phase, int64_t step) {
  phase_ = phase;
  step_ = step;
  if (record_) record_->set(phase, step);
}

void Ledger::waited_for(const run::OperationName& name, Clock::time_point since) {
  waited_seconds_ += std::chrono::duration<double>(Clock::now() - since).count();
  if (wait_observer_) wait_observer_(name, since);
}

std::string Ledger::where() const {
  return phase_.empty() ? std::string()
                        : fmt::format("step {} phase {}: ", step_, phase_);
}

Polling::Polling(Ledger& ledger, std::string_view phase, const run::OperationName& name)
    : ledger_(ledger), phase_before_(ledger.phase()), name_(name) {
  ledger_.set(phase, ledger_.step());
  ledger_.polls_ = true;
}

Polling::~Polling() {
  if (run::RankRecord* record = ledger_.record(); record != nullptr && ticket_ != 0) {
    record->waited();
    record->ended(ticket_);
  }
  ledger_.polls_ = false;
  ledger_.set(phase_before_, ledger_.step());
}

void Polling::look(uint64_t come_to, bool only_others) {
  run::RankRecord* record = ledger_.record();
  if (record == nullptr) return;
  if (std::exchange(come_to_, come_to) != come_to) record->moved();
  if (!only_others || ticket_ != 0) return;
  ticket_ = record->started(name_);
  record->waits(ticket_, name_);
}

}  // namespace longhaul::comm
