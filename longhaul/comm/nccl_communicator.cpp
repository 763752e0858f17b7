#include "longhaul/comm/nccl_communicator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/comm/arguments.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::comm {
namespace {

using Api = NcclApi;

constexpr auto kShortestSleep = std::chrono::microseconds(5);
constexpr auto kLongestSleep = std::chrono::microseconds(200);

}  // namespace

struct NcclCommunicator::Channel {
  Api::Comm comm = nullptr;
  Api::Stream stream = nullptr;
};

struct NcclCommunicator::Shared {
  std::shared_ptr<Api> api;
  std::shared_ptr<Communicator> bootstrap;
  int device = 0;
  NcclOptions options;
  Channel collectives;
  Channel transfers;
  std::vector<Api::Event> spare_events;

  Ledger& ledger() { return bootstrap->ledger(); }
  void check_cuda(int result, const char* call) const {
    if (result == 0) return;
    throw TemporaryError("comm", fmt::format("{}: {}; the device is lost or out of "
                                             "memory: look at the machine's log",
                                             call, api->cuda_text(result)));
  }
  void check_nccl(int result, const std::string& what, Api::Comm comm) {
    if (result == Api::kSuccess) return;
    throw TemporaryError(
        "comm", fmt::format("{}{} failed: NCCL: {}; a rank, its device or its network is "
                            "lost: look for the first failure in the other ranks' logs",
                            ledger().where(), what, api->nccl_text(result, comm)));
  }
  Api::Event take_event() {
    if (spare_events.empty()) {
      Api::Event event = nullptr;
      check_cuda(api->create_event(event), "cudaEventCreate");
      return event;
    }
    const Api::Event event = spare_events.back();
    spare_events.pop_back();
    return event;
  }
  /// What a waiting rank asks now and then.
  void check_alive(const Channel& channel, const std::string& what) {
    int state = Api::kSuccess;
    check_nccl(api->async_error(channel.comm, state), what, channel.comm);
    if (state != Api::kInProgress) check_nccl(state, what, channel.comm);
    if (!options.limits.job_ends) return;
    const std::string why = options.limits.job_ends();
    if (!why.empty()) fail_job_ends(ledger(), what, why);
  }
  /// Calls come back before they are carried out; nothing may follow until they are.
  void settle(int result, const Channel& channel, const std::string& what) {
    if (result != Api::kInProgress) {
      check_nccl(result, what, channel.comm);
      return;
    }
    const Stopwatch watch;
    for (int state = Api::kInProgress; state == Api::kInProgress;) {
      check_nccl(api->async_error(channel.comm, state), what, channel.comm);
      if (state != Api::kInProgress) {
        check_nccl(state, what, channel.comm);
        return;
      }
      check_alive(channel, what);
      const double limit = options.limits.limit_seconds();
      if (watch.seconds() > limit) {
        fail_deadline(ledger(), what, limit, watch.seconds());
      }
      bootstrap->progress();
      std::this_thread::sleep_for(kLongestSleep);
    }
  }
};

namespace {

using Shared = NcclCommunicator::Shared;
using Channel = NcclCommunicator::Channel;

/// An operation in its stream: done when the event behind it is.
class NcclWork : public Work {
 public:
  NcclWork(std::shared_ptr<Shared> shared, Channel channel, OperationId id)
      : shared_(std::move(shared)), channel_(channel), id_(std::move(id)) {
    shared_->ledger().count_under_way(1);
    RankRecord* record = shared_->ledger().record();
    if (record != nullptr && !shared_->ledger().polls()) {
      ticket_ = record->started(id_.name());
    }
  }
  ~NcclWork() override {
    if (event_ != nullptr) shared_->spare_events.push_back(event_);
  }

  const OperationId& id() const { return id_; }

  void mark_end() {
    event_ = shared_->take_event();
    shared_->check_cuda(shared_->api->record(event_, channel_.stream), "cudaEventRecord");
  }

  bool test() override {
    if (done_) return true;
    shared_->check_cuda(shared_->api->set_device(shared_->device), "cudaSetDevice");
    shared_->check_cuda(shared_->api->is_done(event_, done_), "cudaEventQuery");
    if (!done_) {
      shared_->check_alive(channel_, id_.text());
      return false;
    }
    shared_->ledger().count_under_way(-1);
    if (RankRecord* record = this->record()) record->ended(ticket_);
    return true;
  }

  void wait() override {
    const Stopwatch watch;
    bool noted = false;
    auto sleep = kShortestSleep;
    while (!test()) {
      if (RankRecord* record = this->record(); record != nullptr && !noted) {
        record->waits(ticket_, id_.name());
        noted = true;
      }
      const double limit = shared_->options.limits.limit_seconds();
      if (watch.seconds() > limit) {
        fail_deadline(shared_->ledger(), id_.text(), limit, watch.seconds());
      }
      shared_->bootstrap->progress();
      std::this_thread::sleep_for(sleep);
      sleep = std::min(sleep * 2, kLongestSleep);
    }
    if (noted) record()->waited();
    shared_->ledger().add_waited(watch.seconds());
  }

 private:
  RankRecord* record() const {
    return ticket_ == 0 ? nullptr : shared_->ledger().record();
  }

  std::shared_ptr<Shared> shared_;
  Channel channel_;
  OperationId id_;
  Api::Event event_ = nullptr;
  uint64_t ticket_ = 0;
  bool done_ = false;
};

/// Nothing to send: NCCL is not asked.
class DoneWork : public Work {
 public:
  void wait() override {}
  bool test() override { return true; }
};

Channel open_channel(Shared& shared, GroupRank place, const char* kind) {
  Api::UniqueId id{};
  std::string text;
  if (place.rank == 0 && shared.api->unique_id(id) == Api::kSuccess) {
    text.assign(id.begin(), id.end());
  }
  // A rank 0 without an id tells the others so, instead of leaving them to wait.
  text = shared.bootstrap->broadcast_string(text, 0);
  const std::string what =
      fmt::format("NCCL's communicator for {} of '{}', rank {} of {},", kind,
                  shared.bootstrap->name(), place.rank, place.size);
  if (text.size() != id.size()) {
    throw TemporaryError("comm", what +
                                     " got no unique id on rank 0; look at its network "
                                     "interfaces (NCCL_SOCKET_IFNAME)");
  }
  std::memcpy(id.data(), text.data(), id.size());
  Channel channel;
  shared.check_cuda(shared.api->create_stream(channel.stream), "cudaStreamCreate");
  shared.settle(shared.api->init_rank(channel.comm, place.size, id, place.rank), channel,
                what);
  return channel;
}

/// What a rank sends in a ring that passes every byte on once.
int64_t ring_bytes(size_t whole, int ranks) {
  return static_cast<int64_t>(whole / static_cast<size_t>(ranks)) * (ranks - 1);
}

}  // namespace

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclApi> api,
                                   std::shared_ptr<Communicator> bootstrap, int device,
                                   const NcclOptions& options)
    : bootstrap_(std::move(bootstrap)),
      place_{bootstrap_->rank(), bootstrap_->size()},
      shared_(std::make_shared<Shared>()) {
  shared_->api = std::move(api);
  shared_->bootstrap = bootstrap_;
  shared_->device = device;
  shared_->options = options;
  shared_->check_cuda(shared_->api->set_device(device), "cudaSetDevice");
  shared_->collectives = open_channel(*shared_, place_, "collectives");
  shared_->transfers = open_channel(*shared_, place_, "transfers");
}

NcclCommunicator::~NcclCommunicator() = default;

WorkPtr NcclCommunicator::start(Verb verb, size_t bytes, int64_t sent,
                                const std::function<int(const Channel&)>& enqueue) {
  const bool transfer = verb == Verb::SendRecv;
  const int64_t number = ++(transfer ? transfers_started_ : started_);
  const Tally tally{counts_, ledger().counts_of(name()), verb};
  tally.call();
  tally.sent(static_cast<size_t>(sent));
  if (bytes == 0) return std::make_unique<DoneWork>();
  Shared& shared = *shared_;
  Api& api = *shared.api;
  const Channel& channel = transfer ? shared.transfers : shared.collectives;
  auto work = std::make_unique<NcclWork>(
      shared_, channel,
      OperationId{verb, number, bytes, name(), ledger().label(), place_});
  shared.check_cuda(api.set_device(shared.device), "cudaSetDevice");
  const Api::Event ready = shared.take_event();
  const Api::Stream compute =
      shared.options.compute_stream ? shared.options.compute_stream() : nullptr;
  shared.check_cuda(api.record(ready, compute), "cudaEventRecord");
  shared.check_cuda(api.stream_waits(channel.stream, ready), "cudaStreamWaitEvent");
  shared.spare_events.push_back(ready);  // the stream has noted its state
  shared.settle(enqueue(channel), channel, work->id().text());
  work->mark_end();
  return work;
}

WorkPtr NcclCommunicator::all_reduce(Buffer buffer, ReduceOp op) {
  check_buffer("all_reduce", buffer);
  check_reducible("all_reduce", buffer.dtype);
  return start(Verb::AllReduce, buffer.bytes(), 2 * ring_bytes(buffer.bytes(), size()),
               [&](const Channel& channel) {
                 return shared_->api->all_reduce(
                     buffer.data, buffer.data, static_cast<size_t>(buffer.count),
                     buffer.dtype, op, channel.comm, channel.stream);
               });
}

WorkPtr NcclCommunicator::all_gather(ConstBuffer in, Buffer out) {
  check_pair("all_gather", in, 1, out, size());
  return start(Verb::AllGather, out.bytes(), ring_bytes(out.bytes(), size()),
               [&](const Channel& channel) {
                 return shared_->api->all_gather(in.data, out.data, in.bytes(),
                                                 channel.comm, channel.stream);
               });
}

WorkPtr NcclCommunicator::reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) {
  check_pair("reduce_scatter", in, size(), out, 1);
  check_reducible("reduce_scatter", in.dtype);
  return start(Verb::ReduceScatter, in.bytes(), ring_bytes(in.bytes(), size()),
               [&](const Channel& channel) {
                 return shared_->api->reduce_scatter(
                     in.data, out.data, static_cast<size_t>(out.count), in.dtype, op,
                     channel.comm, channel.stream);
               });
}

namespace {

/// Sends and receives that start together: apart, two ranks that send to each other would
/// wait for each other. The first result that is no success, after the group was closed.
int grouped(Api& api, const Channel& channel, const std::vector<Transfer>& transfers) {
  int worst = api.group_start();
  if (worst != Api::kSuccess) return worst;
  for (const Transfer& t : transfers) {
    const size_t bytes = t.buffer.bytes();
    if (bytes == 0) continue;
    const int result =
        t.kind == Transfer::Kind::Send
            ? api.send(t.buffer.data, bytes, t.peer, channel.comm, channel.stream)
            : api.recv(t.buffer.data, bytes, t.peer, channel.comm, channel.stream);
    if (result != Api::kSuccess && result != Api::kInProgress) worst = result;
  }
  const int ended = api.group_end();
  return worst == Api::kSuccess ? ended : worst;
}

}  // namespace

WorkPtr NcclCommunicator::all_to_all(ConstBuffer in, Buffer out) {
  check_all_to_all(in, out, size());
  const int64_t count = in.count / size();
  const size_t bytes = static_cast<size_t>(count) * dtype_size(in.dtype);
  std::vector<Transfer> transfers;
  for (int r = 0; r < size(); ++r) {
    const size_t at = static_cast<size_t>(r) * bytes;
    // Sends only read.
    void* from = const_cast<std::byte*>(static_cast<const std::byte*>(in.data) + at);
    transfers.push_back({Transfer::Kind::Send, r, {from, count, in.dtype}});
    transfers.push_back({Transfer::Kind::Recv,
                         r,
                         {static_cast<std::byte*>(out.data) + at, count, in.dtype}});
  }
  return start(
      Verb::AllToAll, in.bytes(), ring_bytes(in.bytes(), size()),
      [&](const Channel& channel) { return grouped(*shared_->api, channel, transfers); });
}

WorkPtr NcclCommunicator::broadcast(Buffer buffer, int root) {
  check_buffer("broadcast", buffer);
  check_root(*this, root);
  // The last of the ring passes nothing on.
  const bool last = (rank() - root + size()) % size() == size() - 1;
  return start(Verb::Broadcast, buffer.bytes(),
               last ? 0 : static_cast<int64_t>(buffer.bytes()),
               [&](const Channel& channel) {
                 return shared_->api->broadcast(buffer.data, buffer.bytes(), root,
                                                channel.comm, channel.stream);
               });
}

WorkPtr NcclCommunicator::send_recv(std::vector<Transfer> transfers) {
  check_transfers(*this, transfers);
  size_t bytes = 0;
  int64_t sent = 0;
  for (const Transfer& t : transfers) {
    bytes += t.buffer.bytes();
    if (t.kind == Transfer::Kind::Send) sent += static_cast<int64_t>(t.buffer.bytes());
  }
  return start(Verb::SendRecv, bytes, sent, [&](const Channel& channel) {
    return grouped(*shared_->api, channel, transfers);
  });
}

WorkPtr NcclCommunicator::barrier() {
  ++counts_[Verb::Barrier].calls;
  return bootstrap_->barrier();
}

std::unique_ptr<Communicator> NcclCommunicator::split(int color, int key,
                                                      std::string name) {
  return std::make_unique<NcclCommunicator>(
      shared_->api, bootstrap_->split(color, key, std::move(name)), shared_->device,
      shared_->options);
}

void NcclCommunicator::abort(int exit_code) {
  // Shared with a thread that may never come back.
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  std::thread([shared = shared_, ended] {
    shared->api->set_device(shared->device);
    shared->api->abort(shared->collectives.comm);
    shared->api->abort(shared->transfers.comm);
    *ended = true;
  }).detach();
  const Stopwatch watch;
  while (!*ended && watch.seconds() < shared_->options.abort_seconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  bootstrap_->abort(exit_code);
}

std::vector<std::string> NcclCommunicator::gather_strings(const std::string& mine) {
  return bootstrap_->gather_strings(mine);
}

std::string NcclCommunicator::broadcast_string(const std::string& value, int root) {
  return bootstrap_->broadcast_string(value, root);
}

bool NcclCommunicator::any(bool mine) { return bootstrap_->any(mine); }

}  // namespace longhaul::comm
