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

int first_rank(Communicator& group, bool mine) {
  const int none = group.size();
  int64_t first = -(mine ? group.rank() : none);
  group.all_reduce_wait({&first, 1, format::DType::I64}, ReduceOp::Max);
  return -first == none ? -1 : static_cast<int>(-first);
}

std::vector<std::string> distinct_texts(Communicator& group, const std::string& mine) {
  std::vector<std::string> texts;
  bool told = false;
  for (int first = first_rank(group, true); first >= 0;
       first = first_rank(group, !told)) {
    texts.push_back(group.broadcast_string(mine, first));
    told = told || texts.back() == mine;
  }
  return texts;
}

std::string on_rank_zero(Communicator& group, const std::function<std::string()>& work) {
  const std::string mine = group.rank() == 0 ? reply_of(work) : std::string();
  return open_reply(group.broadcast_string(mine, 0));
}

void on_all_ranks(Communicator& group, const std::function<void()>& work) {
  const std::optional<Failure> mine = Failure::of(work);
  const int first = first_rank(group, mine.has_value());
  if (first < 0) return;
  const std::string text = group.broadcast_string(Failure::to_text(mine), first);
  if (!mine) group.ledger().failed_elsewhere();
  Failure::from_text(text).value().raise();
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
