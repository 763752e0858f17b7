#include "longhaul/comm/entry.h"

#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::comm {

std::string OperationId::text() const {
  return fmt::format("{}, rank {} of {},", to_string(name()), place.rank, place.size);
}

OperationEntry::OperationEntry(Ledger& ledger, OperationId id)
    : ledger_(ledger), id_(std::move(id)) {
  ledger_.count_under_way(1);
  if (ledger_.polls()) return;
  if (run::RankRecord* record = ledger_.record()) ticket_ = record->started(id_.name());
}

void OperationEntry::ended() {
  ledger_.count_under_way(-1);
  if (run::RankRecord* record = this->record()) record->ended(ticket_);
}

void OperationEntry::waits() {
  run::RankRecord* record = this->record();
  if (record == nullptr || std::exchange(noted_, true)) return;
  record->waits(ticket_, id_.name());
}

void OperationEntry::waited(Ledger::Clock::time_point since) {
  if (std::exchange(noted_, false)) ledger_.record()->waited();
  ledger_.waited_for(id_.name(), since);
}

void check_wait(const Ledger& ledger, const CommOptions& limits,
                Ledger::Clock::time_point since,
                const std::function<std::string()>& operation) {
  const double waited =
      std::chrono::duration<double>(Ledger::Clock::now() - since).count();
  if (const double limit = limits.limit_seconds(); waited > limit) {
    fail_temporary(
        "comm",
        "{}{} did not end within {:.1f} s (waited {:.1f} s); another rank is dead, stuck "
        "or out of step: look for the first failure in the other ranks' logs",
        ledger.where(), operation(), limit, waited);
  }
  const std::string why = limits.job_ends ? limits.job_ends() : std::string();
  if (why.empty()) return;
  fail_temporary("comm", "{}{} was under way: {}", ledger.where(), operation(), why);
}

}  // namespace longhaul::comm
