#include "longhaul/comm/staged.h"

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/comm/arguments.h"
#include "longhaul/comm/engine.h"

namespace longhaul::comm {
namespace {

/// Messages carry what they belong to, so that ranks that are out of step wait for their
/// deadline and say so, and never add one operation's numbers to another's. Transfers
/// have no number: it differs from rank to rank, and the order of a pair's calls decides.
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
  std::shared_ptr<OperationQueue> queue_;  // lives on if the communicator goes first
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

WorkPtr StagedCommunicator::start(Verb verb, size_t bytes, Program program) {
  const bool transfer = verb == Verb::SendRecv;
  const int64_t number = ++(transfer ? queue_->transfers_started : queue_->started);
  OperationId id{verb, number, bytes, name_, engine_->ledger().label(), group_};
  auto operation = std::make_shared<Operation>(
      std::move(id), std::move(program), transport_->open(), tag_of(verb, number),
      options_.max_message_bytes, Tally{queue_->counts, group_counts_, verb});
  engine_->begin(*operation);
  if (transfer) {
    queue_->transfers.push_back(operation);
  } else {
    queue_->collectives.push_back(operation);
  }
  engine_->progress();
  return std::make_unique<StagedWork>(std::move(operation), engine_, queue_, options_);
}

WorkPtr StagedCommunicator::all_reduce(Buffer buffer, ReduceOp op) {
  check_buffer("all_reduce", buffer);
  check_reducible("all_reduce", buffer.dtype);
  return start(Verb::AllReduce, buffer.bytes(),
               all_reduce_program(group_, buffer, op, options_));
}

WorkPtr StagedCommunicator::all_gather(ConstBuffer in, Buffer out) {
  check_pair("all_gather", in, 1, out, group_.size);
  return start(Verb::AllGather, out.bytes(), all_gather_program(group_, in, out));
}

WorkPtr StagedCommunicator::reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) {
  check_pair("reduce_scatter", in, group_.size, out, 1);
  check_reducible("reduce_scatter", in.dtype);
  return start(Verb::ReduceScatter, in.bytes(),
               reduce_scatter_program(group_, in, out, op, options_));
}

WorkPtr StagedCommunicator::all_to_all(ConstBuffer in, Buffer out) {
  check_all_to_all(in, out, group_.size);
  return start(Verb::AllToAll, in.bytes(), all_to_all_program(group_, in, out));
}

WorkPtr StagedCommunicator::broadcast(Buffer buffer, int root) {
  check_buffer("broadcast", buffer);
  check_root(*this, root);
  return start(Verb::Broadcast, buffer.bytes(),
               broadcast_program(group_, buffer, root, options_));
}

WorkPtr StagedCommunicator::send_recv(std::vector<Transfer> transfers) {
  check_transfers(*this, transfers);
  size_t bytes = 0;
  for (const Transfer& t : transfers) bytes += t.buffer.bytes();
  return start(Verb::SendRecv, bytes, send_recv_program(std::move(transfers)));
}

WorkPtr StagedCommunicator::barrier() {
  return start(Verb::Barrier, 0, barrier_program(group_));
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
  // Also the barrier with a deadline before what the transport does without one.
  all_gather({&mine, 2, DType::I64}, {all.data(), 2 * group_.size, DType::I64})->wait();
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
