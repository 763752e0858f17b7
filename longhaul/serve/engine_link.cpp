#include "longhaul/serve/engine_link.h"

#include <sys/socket.h>

#include <chrono>
#include <string>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/system/messages.h"
#include "longhaul/system/signals.h"

namespace longhaul::serve {
namespace {

int64_t numbers_of(const std::vector<Sequence>& sequences) {
  int64_t numbers = 0;
  for (const Sequence& sequence : sequences) numbers += sequence.numbers();
  if (numbers <= kMostNumbers) return numbers;
  fail_input("request",
             "the request is of {} tokens and log-probabilities, those that it asks for "
             "among them; at most {} have room: send fewer prompts at one time, or lower "
             "max_tokens or logprobs",
             numbers, kMostNumbers);
}

}  // namespace

EngineLink::EngineLink(int socket) : socket_(socket) {
  receiver_ = std::thread([this] {
    system::leave_signals_to_main_thread();
    static_cast<void>(Failure::of([this] { receive(); }));
    const std::lock_guard lock(mutex_);
    ended_ = true;
    over_.notify_all();
    for (const auto& [number, call] : calls_) call->changed_.notify_all();
  });
}

EngineLink::~EngineLink() {
  ::shutdown(socket_, SHUT_RDWR);
  receiver_.join();
}

void EngineLink::receive() {
  std::string text;
  while (system::receive_text(socket_, text, kMostMessageBytes)) {
    Json events = Json::parse(text);
    const std::lock_guard lock(mutex_);
    for (Json& event : events) {
      const auto number = event.at("number").get<uint64_t>();
      const auto found = calls_.find(number);
      if (found == calls_.end()) continue;  // cancelled
      Call& call = *found->second;
      const size_t index = call.open_.at(number);
      if (event.contains("end")) {
        call.open_.erase(number);
        calls_.erase(found);
      }
      call.events_.emplace_back(index, std::move(event));
      call.changed_.notify_all();
    }
  }
}

void EngineLink::send(const Json& message) {
  const std::lock_guard lock(sending_);
  system::send_text(socket_, json_text(message));
}

void EngineLink::await_end() {
  std::unique_lock lock(mutex_);
  over_.wait(lock, [this] { return ended_; });
}

EngineLink::Call::Call(EngineLink& link, std::vector<Sequence> sequences)
    : link_(link), numbers_(numbers_of(sequences)) {
  {
    const std::lock_guard lock(link_.mutex_);
    if (std::ssize(link_.calls_) + std::ssize(sequences) > kMostSequences ||
        link_.numbers_ + numbers_ > kMostNumbers) {
      fail_temporary("serve",
                     "{} sequences of {} tokens and log-probabilities wait already, so "
                     "that {} more of {} have no room; try again later",
                     link_.calls_.size(), link_.numbers_, sequences.size(), numbers_);
    }
    link_.numbers_ += numbers_;
    for (size_t i = 0; i < sequences.size(); ++i) {
      sequences[i].number = link_.next_number_++;
      open_[sequences[i].number] = i;
      link_.calls_[sequences[i].number] = this;
    }
  }
  Json list = Json::array();
  for (const Sequence& sequence : sequences) list.push_back(sequence.json());
  link_.send({{"sequences", std::move(list)}});
}

EngineLink::Call::~Call() {
  std::vector<uint64_t> numbers;
  {
    const std::lock_guard lock(link_.mutex_);
    link_.numbers_ -= numbers_;
    for (const auto& [number, index] : open_) {
      link_.calls_.erase(number);
      numbers.push_back(number);
    }
  }
  for (const uint64_t number : numbers) link_.send({{"cancel", number}});
}

void EngineLink::Call::cancel(size_t index) {
  uint64_t cancelled = 0;
  {
    const std::lock_guard lock(link_.mutex_);
    std::erase_if(open_, [&](const auto& entry) {
      if (entry.second == index) cancelled = entry.first;
      return entry.second == index;
    });
    link_.calls_.erase(cancelled);
  }
  if (cancelled > 0) link_.send({{"cancel", cancelled}});
}

std::optional<std::pair<size_t, Json>> EngineLink::Call::next(double seconds) {
  std::unique_lock lock(link_.mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                    [this] { return !events_.empty() || link_.ended_; });
  if (!events_.empty()) {
    auto event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  if (link_.ended_) {
    throw TemporaryError("serve", "the program with the model has ended");
  }
  return std::nullopt;
}

}  // namespace longhaul::serve
