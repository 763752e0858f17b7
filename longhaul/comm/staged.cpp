#include "longhaul/comm/staged.h"

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/comm/engine.h"
#include "longhaul/comm/reduce.h"

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

class StagedWork : public Work {
 public:
  StagedWork(std::shared_ptr<Operation> operation, std::shared_ptr<Engine> engine,
             std::shared_ptr<OperationQueue> queue, double deadline_seconds)
      : operation_(std::move(operation)),
        engine_(std::move(engine)),
        queue_(std::move(queue)),
        deadline_seconds_(deadline_seconds) {}

  void wait() override {
    if (!operation_->done()) engine_->wait(*operation_, deadline_seconds_);
  }
  bool test() override {
    if (!operation_->done()) engine_->progress();
    return operation_->done();
  }

 private:
  std::shared_ptr<Operation> operation_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<OperationQueue> queue_;  // lives on if the communicator goes first
  double deadline_seconds_;
};

void check_buffer(const char* verb, const ConstBuffer& buffer) {
  LH_CHECK(buffer.count >= 0, "comm", "{}: count = {} is negative", verb, buffer.count);
  LH_CHECK(buffer.data != nullptr || buffer.count == 0, "comm",
           "{}: {} elements at a null address", verb, buffer.count);
}

void check_reducible(const char* verb, DType dtype) {
  LH_CHECK(is_reducible(dtype), "comm",
           "{}: {} cannot be reduced; F32, BF16, F64 and I64 can", verb,
           dtype_name(dtype));
}

void check_pair(const char* verb, const ConstBuffer& in, int64_t in_parts,
                const ConstBuffer& out, int64_t out_parts) {
  check_buffer(verb, in);
  check_buffer(verb, out);
  LH_CHECK(in.dtype == out.dtype, "comm", "{}: in is {}, out is {}", verb,
           dtype_name(in.dtype), dtype_name(out.dtype));
  // in.count / in_parts = out.count / out_parts, without a product that could overflow.
  LH_CHECK(in.count % in_parts == 0 && out.count % out_parts == 0 &&
               in.count / in_parts == out.count / out_parts,
           "comm", "{}: in.count = {} and out.count = {} do not fit {} ranks", verb,
           in.count, out.count, std::max(in_parts, out_parts));
}

}  // namespace

StagedCommunicator::StagedCommunicator(std::unique_ptr<Transport> transport,
                                       std::string name, const CommOptions& options,
                                       std::shared_ptr<Engine> engine)
    : transport_(std::move(transport)),
      name_(std::move(name)),
      options_(options),
      group_{transport_->rank(), transport_->size()},
      engine_(engine ? std::move(engine) : std::make_shared<Engine>()),
      queue_(std::make_shared<OperationQueue>()) {
  engine_->add(queue_);
}

StagedCommunicator::~StagedCommunicator() = default;

WorkPtr StagedCommunicator::start(Verb verb, size_t bytes,
                                  std::unique_ptr<Program> program) {
  const bool transfer = verb == Verb::SendRecv;
  const int64_t number = ++(transfer ? queue_->transfers_started : queue_->started);
  auto operation = std::make_shared<Operation>(
      std::move(program), transport_->open(), tag_of(verb, number),
      options_.max_message_bytes,
      fmt::format("{} number {} ({} bytes) on '{}', rank {} of {},", verb_name(verb),
                  number, bytes, name_, group_.rank, group_.size));
  if (transfer) {
    queue_->transfers.push_back(operation);
  } else {
    queue_->collectives.push_back(operation);
  }
  engine_->progress();
  return std::make_unique<StagedWork>(std::move(operation), engine_, queue_,
                                      options_.deadline_seconds);
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
  check_pair("all_to_all", in, group_.size, out, group_.size);
  LH_CHECK(in.count == 0 || in.data != out.data, "comm",
           "all_to_all: in and out are the same memory");
  return start(Verb::AllToAll, in.bytes(), all_to_all_program(group_, in, out));
}

WorkPtr StagedCommunicator::broadcast(Buffer buffer, int root) {
  check_buffer("broadcast", buffer);
  LH_CHECK(root >= 0 && root < group_.size, "comm",
           "broadcast: root = {} is no rank of '{}' ({} ranks)", root, name_,
           group_.size);
  return start(Verb::Broadcast, buffer.bytes(),
               broadcast_program(group_, buffer, root, options_));
}

WorkPtr StagedCommunicator::send_recv(std::vector<Transfer> transfers) {
  size_t bytes = 0;
  for (const Transfer& t : transfers) {
    check_buffer("send_recv", t.buffer);
    LH_CHECK(t.peer >= 0 && t.peer < group_.size && t.peer != group_.rank, "comm",
             "send_recv: peer = {} is no other rank of '{}' (rank {} of {})", t.peer,
             name_, group_.rank, group_.size);
    bytes += t.buffer.bytes();
  }
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

void StagedCommunicator::abort(int exit_code) { transport_->abort(exit_code); }

}  // namespace longhaul::comm
