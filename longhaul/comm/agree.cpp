#include "longhaul/comm/agree.h"

#include "longhaul/base/failure.h"
#include "longhaul/comm/ledger.h"

namespace longhaul::comm {

std::string on_rank_zero(Communicator& group, const std::function<std::string()>& work) {
  const std::string mine = group.rank() == 0 ? reply_of(work) : std::string();
  return open_reply(group.broadcast_string(mine, 0));
}

void on_all_ranks(Communicator& group, const std::function<void()>& work) {
  const std::string mine = Failure::to_text(Failure::of(work));
  for (const std::string& text : group.gather_strings(mine)) {
    const auto failure = Failure::from_text(text);
    if (failure && mine.empty()) group.ledger().failed_elsewhere();
    if (failure) failure->raise();
  }
}

}  // namespace longhaul::comm
