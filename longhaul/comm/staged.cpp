#include "longhaul/comm/staged.h"

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/comm/engine.h"

namespace longhaul::comm {
namespace {

/// Returns the tag of an operation's messages, made of verb and number. Ranks that are
/// out of step therefore miss their deadline, and never add one operation's numbers to
/// those of another. Tags of transfers have no number, because it differs from rank to
/// rank: the order of the calls of two ranks decides which messages match.
int tag_of(Verb verb, int64_t number) {
  constexpr int kVerbs = 8;
  const bool transfer = verb == Verb::SendRecv;
  const auto count = transfer ? 0 : static_cast<int>(number % (kTagLimit / kVerbs));
  return count * kVerbs + static_cast<int>(verb);
}

class StagedWork : public Work {
 public:
  StagedWork(std::shared_ptr<Operation> operation, std::shared_ptr<Engine> engine,
             std::shared_ptr<OperationQueue> queue, CommOptions options)
      : operation_(std::move(operation)),
        engine_(std::move(engine)),
        queue_(std::move(queue)),
        options_(std::move(options)) {}

  void wait() override {
    if (!operation_->done()) engine_->wait(*operation_, options_);
  }
  bool test() override {
    if (!operation_->done()) engine_->progress();
    return operation_->done();
  }

 private:
  std::shared_ptr<Operation> operation_;
  std::shared_ptr<Engine> engine_;
  /// The Work keeps the queue alive if the communicator is destroyed first.
  std::shared_ptr<OperationQueue> queue_;
  CommOptions options_;
};

}  // namespace

StagedCommunicator::StagedCommunicator(std::unique_ptr<Transport> transport,
                                       std::string name, const CommOptions& options,
                                       std::shared_ptr<Engine> engine)
    : transport_(std::move(transport)),
      name_(std::move(name)),
      options_(options),
      group_{transport_->rank(), transport_->size()},
      engine_(engine ? std::move(engine) : std::make_shared<Engine>()),
      queue_(std::make_shared<OperationQueue>()),
      group_counts_(engine_->ledger().counts_of(name_)) {
  engine_->add(queue_);
}

StagedCommunicator::~StagedCommunicator() = default;

WorkPtr StagedCommunicator::start(Request request) {
  engine_->check_thread();
  const Verb verb = request.verb;
  const int64_t number = queue_->numbers.next(verb);
  OperationEntry entry(engine_->ledger(), {verb, number, request.bytes(), name_,
                                           engine_->ledger().label(), group_});
  auto operation = std::make_shared<Operation>(
      std::move(entry), program_of(std::move(request), group_, options_),
      transport_->open(), tag_of(verb, number), options_.max_message_bytes,
      Tally{queue_->counts, group_counts_, verb});
  if (verb == Verb::SendRecv) {
    queue_->transfers.push_back(operation);
  } else {
    queue_->collectives.push_back(operation);
  }
  engine_->progress();
  return std::make_unique<StagedWork>(std::move(operation), engine_, queue_, options_);
}

std::unique_ptr<Communicator> StagedCommunicator::split(int color, int key,
                                                        std::string name) {
  LH_CHECK(color >= 0, "comm", "split: color = {} is negative", color);
  struct Choice {
    int64_t color;
    int64_t key;
  };
  const Choice mine{color, key};
  std::vector<Choice> all(static_cast<size_t>(group_.size));
  // The gather also serves as a barrier with a deadline, since the transport's split has
  // no deadline.
  all_gather({&mine, 2, format::DType::I64},
             {all.data(), 2 * group_.size, format::DType::I64})
      ->wait();
  std::vector<int> members;
  for (int r = 0; r < group_.size; ++r) {
    if (all[static_cast<size_t>(r)].color == color) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return all[static_cast<size_t>(a)].key < all[static_cast<size_t>(b)].key;
  });
  return std::make_unique<StagedCommunicator>(transport_->split(color, members),
                                              std::move(name), options_, engine_);
}

const CommCounts& StagedCommunicator::counts() const { return queue_->counts; }

Ledger& StagedCommunicator::ledger() { return engine_->ledger(); }

void StagedCommunicator::progress() { engine_->progress(); }

void StagedCommunicator::abort(int exit_code) { transport_->abort(exit_code); }

}  // namespace longhaul::comm
