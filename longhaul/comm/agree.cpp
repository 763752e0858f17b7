#include "longhaul/comm/agree.h"

#include <chrono>
#include <future>
#include <optional>

#include "longhaul/base/failure.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/system/signals.h"

namespace longhaul::comm {
namespace {

/// How often waiting ranks communicate: far shorter than a collective's time limit.
constexpr auto kMeeting = std::chrono::seconds(2);

}  // namespace

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

void do_and_meet(Communicator& group, const std::function<void()>& work,
                 const std::function<void()>& stop) {
  std::future<std::optional<Failure>> result = std::async(std::launch::async, [&] {
    system::leave_signals_to_main_thread();
    return Failure::of(work);
  });
  using Status = std::future_status;
  const auto busy = [&] { return result.wait_for(kMeeting) != Status::ready; };
  try {
    while (group.any(busy())) {
      if (stop && system::raised_signal().number != 0) stop();
    }
  } catch (...) {
    if (stop) stop();
    throw;
  }
  const std::optional<Failure> failure = result.get();
  on_all_ranks(group, [&] {
    if (failure) failure->raise();
  });
}

}  // namespace longhaul::comm
