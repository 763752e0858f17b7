#include "longhaul/rehearsal/group.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::rehearsal {
namespace {

using comm::Request;
using comm::Verb;

class RecordedWork : public comm::Work {
 public:
  RecordedWork(std::shared_ptr<Player> player, size_t operation)
      : player_(std::move(player)), operation_(operation) {}
  void wait() override {
    if (!std::exchange(waited_, true)) act(Act::Kind::Wait);
  }
  void order() override {
    if (!waited_ && !std::exchange(ordered_, true)) act(Act::Kind::Order);
  }
  bool test() override { return true; }

 private:
  void act(Act::Kind kind) const {
    if (player_->script != nullptr) player_->script->add(kind, operation_);
  }

  std::shared_ptr<Player> player_;
  size_t operation_;
  bool waited_ = false;
  bool ordered_ = false;
};

template <typename Number>
void multiply(const comm::Buffer& buffer, int by) {
  auto* numbers = static_cast<Number*>(buffer.data);
  for (int64_t i = 0; i < buffer.count; ++i) numbers[i] *= static_cast<Number>(by);
}

/// Leaves in memory of the host what the operation leaves there if all ranks have brought
/// the same.
void act_on_host(const Request& request, int ranks) {
  const comm::Buffer& out = request.out;
  const auto* from = static_cast<const std::byte*>(request.in.data);
  auto* to = static_cast<std::byte*>(out.data);
  const bool sums = request.op == comm::ReduceOp::Sum;
  switch (request.verb) {
    case Verb::AllReduce:
      if (sums && out.dtype == format::DType::I64) multiply<int64_t>(out, ranks);
      if (sums && out.dtype == format::DType::F64) multiply<double>(out, ranks);
      if (sums && out.dtype == format::DType::F32) multiply<float>(out, ranks);
      break;
    case Verb::AllGather:
      for (int r = 0; r < ranks; ++r) {
        std::memmove(to + static_cast<size_t>(r) * request.in.bytes(), from,
                     request.in.bytes());
      }
      break;
    case Verb::ReduceScatter:
    case Verb::AllToAll:
      std::memmove(to, from, out.bytes());
      break;
    default:
      for (const comm::Transfer& t : request.transfers) {
        if (t.kind == comm::Transfer::Kind::Recv) {
          std::memset(t.buffer.data, 0, t.buffer.bytes());
        }
      }
  }
}

}  // namespace

Board::Board(int ranks) {
  GroupMembers& world = groups_.emplace_back();
  world.name = "world";
  world.ranks.resize(static_cast<size_t>(ranks));
  std::iota(world.ranks.begin(), world.ranks.end(), 0);
}

GroupMembers Board::group(int number) {
  const std::lock_guard lock(mutex_);
  return groups_.at(static_cast<size_t>(number));
}

int Board::split(int whole, int call, int rank, int color, int key,
                 const std::string& name) {
  std::unique_lock lock(mutex_);
  Meeting& meeting = meetings_[{whole, call}];
  meeting.parts.push_back({color, key, rank, name});
  if (meeting.parts.size() == groups_[static_cast<size_t>(whole)].ranks.size()) {
    std::ranges::sort(meeting.parts, {}, [](const Meeting::Part& part) {
      return std::tuple(part.color, part.key, part.rank);
    });
    for (size_t i = 0; i < meeting.parts.size(); ++i) {
      const Meeting::Part& part = meeting.parts[i];
      if (i == 0 || part.color != meeting.parts[i - 1].color) {
        groups_.push_back({part.name, {}});
      }
      groups_.back().ranks.push_back(part.rank);
      meeting.groups[part.rank] = static_cast<int>(groups_.size()) - 1;
    }
    all_here_.notify_all();
  }
  all_here_.wait(lock, [&] { return error_ || !meeting.groups.empty(); });
  if (meeting.groups.empty()) std::rethrow_exception(error_);
  return meeting.groups.at(rank);
}

void Board::give_up(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  all_here_.notify_all();
}

std::shared_ptr<comm::Communicator> RecordedGroup::world(std::shared_ptr<Player> player) {
  return make(std::move(player), 0);
}

std::unique_ptr<comm::Communicator> RecordedGroup::make(std::shared_ptr<Player> player,
                                                        int number) {
  if (player->of_host) return std::make_unique<RecordedGroup>(std::move(player), number);
  return std::make_unique<AnyRecordedGroup>(std::move(player), number);
}

RecordedGroup::RecordedGroup(std::shared_ptr<Player> player, int number)
    : player_(std::move(player)),
      number_(number),
      local_(static_cast<int>(player_->groups.size())) {
  player_->groups.push_back(number);
  const GroupMembers members = player_->board->group(number);
  rank_ = static_cast<int>(std::ranges::find(members.ranks, player_->rank) -
                           members.ranks.begin());
  size_ = static_cast<int>(members.ranks.size());
  name_ = members.name;
}

comm::WorkPtr RecordedGroup::start(Request request) {
  ++counts_[request.verb].calls;
  const void* memory =
      request.transfers.empty() ? request.in.data : request.transfers.front().buffer.data;
  const bool device = player_->on_device && player_->on_device(memory);
  if (!device) act_on_host(request, size_);
  // As comm::DeviceCommunicator, which starts nothing without bytes.
  const bool nothing = device && request.bytes() == 0;
  if (player_->script == nullptr || size_ == 1 || nothing) {
    return std::make_unique<comm::DoneWork>();
  }
  Operation operation;
  operation.group = local_;
  const bool transfers = request.verb == Verb::SendRecv;
  operation.lane = !device ? Lane::Host : transfers ? Lane::Transfers : Lane::Collectives;
  operation.verb = request.verb;
  operation.dtype = transfers ? request.transfers.front().buffer.dtype : request.in.dtype;
  operation.op = request.op;
  operation.root = request.root;
  operation.bytes = static_cast<int64_t>(request.bytes());
  const comm::Ledger& ledger = player_->ledger;
  operation.step = static_cast<int32_t>(ledger.step());
  operation.phase = player_->script->number_of(ledger.phase());
  operation.label = player_->script->number_of(ledger.label());
  for (const comm::Transfer& t : request.transfers) {
    if (t.buffer.count == 0) continue;
    operation.messages.push_back({t.peer, t.kind == comm::Transfer::Kind::Send,
                                  static_cast<int64_t>(t.buffer.bytes())});
  }
  return std::make_unique<RecordedWork>(player_,
                                        player_->script->start(std::move(operation)));
}

std::unique_ptr<comm::Communicator> RecordedGroup::split(int color, int key,
                                                         std::string name) {
  const int number =
      player_->board->split(number_, splits_++, player_->rank, color, key, name);
  return make(player_, number);
}

void RecordedGroup::abort(int exit_code) {
  fail_temporary("rehearse", "rank {} gives up with exit code {}", player_->rank,
                 exit_code);
}

}  // namespace longhaul::rehearsal
