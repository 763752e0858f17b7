#include "longhaul/comm/ledger.h"

#include <fmt/format.h>

namespace longhaul::comm {

const char* verb_name(Verb verb) {
  switch (verb) {
    case Verb::SendRecv:
      return "send_recv";
    case Verb::AllReduce:
      return "all_reduce";
    case Verb::AllGather:
      return "all_gather";
    case Verb::ReduceScatter:
      return "reduce_scatter";
    case Verb::AllToAll:
      return "all_to_all";
    case Verb::Broadcast:
      return "broadcast";
    case Verb::Barrier:
      return "barrier";
  }
  return "?";
}

void Ledger::attach(std::shared_ptr<RankRecord> record) {
  record_ = std::move(record);
  if (record_ && !phase_.empty()) record_->set(phase_, step_);
}

void Ledger::set(std::string_view phase, int64_t step) {
  phase_ = phase;
  step_ = step;
  if (record_) record_->set(phase, step);
}

std::string Ledger::where() const {
  return phase_.empty() ? std::string()
                        : fmt::format("step {} phase {}: ", step_, phase_);
}

}  // namespace longhaul::comm
