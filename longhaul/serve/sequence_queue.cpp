#include "longhaul/serve/sequence_queue.h"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/system/messages.h"
#include "longhaul/system/signals.h"

namespace longhaul::serve {

std::vector<Sequence> take_batch(std::deque<Sequence>& waiting,
                                 const BatchLimits& limits) {
  std::vector<Sequence> batch;
  int64_t longest = 0, most = 0;  // tokens of a prompt, and behind one
  for (auto next = waiting.begin();
       next != waiting.end() && std::ssize(batch) < limits.sequences;) {
    const bool continues = next->max_tokens > 1;
    const int64_t length = std::max<int64_t>(longest, std::ssize(next->prompt));
    const int64_t more = std::max(most, next->positions() - std::ssize(next->prompt));
    const bool fits =
        batch.empty() || ((batch.front().max_tokens > 1) == continues &&
                          (length + more) * (std::ssize(batch) + 1) <= limits.positions);
    if (!fits) {
      ++next;
      continue;
    }
    longest = length;
    most = more;
    batch.push_back(std::move(*next));
    next = waiting.erase(next);
  }
  return batch;
}

SequenceQueue::SequenceQueue(int socket) : socket_(socket) {
  receiver_ = std::thread([this] {
    system::leave_signals_to_main_thread();
    static_cast<void>(Failure::of([this] { receive(); }));
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  });
}

SequenceQueue::~SequenceQueue() {
  ::shutdown(socket_, SHUT_RDWR);
  receiver_.join();
}

void SequenceQueue::receive() {
  std::string text;
  while (system::receive_text(socket_, text, kMostMessageBytes)) {
    const Json message = Json::parse(text);
    const std::lock_guard lock(mutex_);
    if (message.contains("sequences")) {
      for (const Json& one : message["sequences"]) waiting_.push_back(Sequence::of(one));
      changed_.notify_all();
      continue;
    }
    const auto number = message.at("cancel").get<uint64_t>();
    if (std::erase_if(waiting_, [&](const Sequence& s) { return s.number == number; }) ==
        0) {
      cancelled_.insert(number);
    }
  }
}

std::vector<Sequence> SequenceQueue::take(const BatchLimits& limits, double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                    [this] { return ended_ || !waiting_.empty(); });
  if (ended_) {
    throw TemporaryError("serve",
                         "the process longhaul-serve has ended; start the server again");
  }
  // The batch before has ended, and with it every sequence that was cancelled.
  cancelled_.clear();
  return take_batch(waiting_, limits);
}

bool SequenceQueue::is_cancelled(uint64_t number) {
  const std::lock_guard lock(mutex_);
  return ended_ || cancelled_.contains(number);
}

void SequenceQueue::tell(const Json& events) {
  system::send_text(socket_, json_text(events));
}

}  // namespace longhaul::serve
