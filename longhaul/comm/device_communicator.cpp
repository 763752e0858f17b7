#include "longhaul/comm/device_communicator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/comm/arguments.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::comm {
namespace {

using Api = DeviceApi;

constexpr auto kShortestSleep = std::chrono::microseconds(5);
constexpr auto kLongestSleep = std::chrono::microseconds(200);

}  // namespace

struct DeviceCommunicator::Flight {
  OperationId id;
  Api::Event ready = nullptr;  ///< the device has come to it
  Api::Event end = nullptr;
  uint64_t ticket = 0;  ///< in the rank's record, 0 without one
  bool done = false;
  std::optional<Stopwatch> since_ready = {};  ///< as far as the host has seen
};

struct DeviceCommunicator::Channel {
  Api::Comm comm = nullptr;
  Api::Stream stream = nullptr;
  std::deque<std::shared_ptr<Flight>> flights = {};  ///< in the order of the stream
};

struct DeviceCommunicator::Shared {
  std::shared_ptr<Api> api;
  std::shared_ptr<Communicator> bootstrap;
  int device = 0;
  DeviceOptions options;
  Channel collectives;
  Channel transfers;
  std::vector<Api::Event> spare_events;

  Ledger& ledger() { return bootstrap->ledger(); }
  const CommOptions& limits() const { return bootstrap->limits(); }
  Api::Stream compute_stream() const {
    return options.compute_stream ? options.compute_stream() : nullptr;
  }
  void check_device(int result, const char* what) const {
    if (result == 0) return;
    throw TemporaryError("comm", fmt::format("{}: {}; the device is lost or out of "
                                             "memory: look at the machine's log",
                                             what, api->device_text(result)));
  }
  void check(int result, const std::string& what, Api::Comm comm) {
    if (result == Api::kSuccess) return;
    throw TemporaryError(
        "comm",
        fmt::format("{}{} failed: {}: {}; a rank, its device or its network is "
                    "lost: look for the first failure in the other ranks' logs",
                    ledger().where(), what, api->name(), api->error_text(result, comm)));
  }
  void take_device() { check_device(api->set_device(device), "choosing the device"); }
  Api::Event take_event() {
    if (spare_events.empty()) {
      Api::Event event = nullptr;
      check_device(api->create_event(event), "making an event");
      return event;
    }
    const Api::Event event = spare_events.back();
    spare_events.pop_back();
    return event;
  }
  /// An event behind what is in the stream now.
  Api::Event mark(Api::Stream stream) {
    const Api::Event event = take_event();
    check_device(api->record(event, stream), "recording an event");
    return event;
  }
  bool reached(Api::Event event) const {
    bool done = false;
    check_device(api->is_done(event, done), "asking an event");
    return done;
  }
  /// Takes out what the device has ended.
  void reap(Channel& channel) {
    while (!channel.flights.empty() && reached(channel.flights.front()->end)) {
      Flight& flight = *channel.flights.front();
      flight.done = true;
      spare_events.insert(spare_events.end(), {flight.ready, flight.end});
      ledger().count_under_way(-1);
      if (flight.ticket != 0) ledger().record()->ended(flight.ticket);
      channel.flights.pop_front();
    }
  }
  /// Throws where the first operation of the stream has failed or takes too long.
  void check_first(Channel& channel) {
    if (channel.flights.empty()) return;
    Flight& first = *channel.flights.front();
    check_alive(channel, first.id.text());
    if (!first.since_ready) {
      if (reached(first.ready)) first.since_ready.emplace();
      return;
    }
    const double limit = limits().limit_seconds();
    if (first.since_ready->seconds() > limit) {
      fail_deadline(ledger(), first.id.text(), limit, first.since_ready->seconds());
    }
  }
  void look() {
    take_device();
    for (Channel* channel : {&collectives, &transfers}) {
      reap(*channel);
      check_first(*channel);
    }
  }
  /// What a waiting rank asks now and then.
  void check_alive(const Channel& channel, const std::string& what) {
    int state = Api::kSuccess;
    check(api->async_error(channel.comm, state), what, channel.comm);
    if (state != Api::kInProgress) check(state, what, channel.comm);
    if (!limits().job_ends) return;
    const std::string why = limits().job_ends();
    if (!why.empty()) fail_job_ends(ledger(), what, why);
  }
  /// Calls come back before they are carried out; nothing may follow until they are.
  void settle(int result, const Channel& channel, const std::string& what) {
    if (result != Api::kInProgress) {
      check(result, what, channel.comm);
      return;
    }
    const Stopwatch watch;
    for (int state = Api::kInProgress; state == Api::kInProgress;) {
      check(api->async_error(channel.comm, state), what, channel.comm);
      if (state != Api::kInProgress) {
        check(state, what, channel.comm);
        return;
      }
      check_alive(channel, what);
      const double limit = limits().limit_seconds();
      if (watch.seconds() > limit) {
        fail_deadline(ledger(), what, limit, watch.seconds());
      }
      bootstrap->progress();
      std::this_thread::sleep_for(kLongestSleep);
    }
  }
};

namespace {

using Shared = DeviceCommunicator::Shared;
using Channel = DeviceCommunicator::Channel;
using Flight = DeviceCommunicator::Flight;

/// An operation in its stream: done when the event behind it is.
class DeviceWork : public Work {
 public:
  DeviceWork(std::shared_ptr<Shared> shared, Channel& channel,
             std::shared_ptr<Flight> flight)
      : shared_(std::move(shared)), channel_(channel), flight_(std::move(flight)) {}

  bool test() override {
    if (flight_->done) return true;
    shared_->take_device();
    shared_->reap(channel_);
    if (!flight_->done) shared_->check_first(channel_);
    return flight_->done;
  }

  void order() override {
    if (flight_->done) return;
    shared_->take_device();
    shared_->check_device(
        shared_->api->stream_waits(shared_->compute_stream(), flight_->end),
        "ordering a stream");
  }

  void wait() override {
    const auto start = Ledger::Clock::now();
    bool noted = false;
    auto sleep = kShortestSleep;
    while (!test()) {
      if (flight_->ticket != 0 && !noted) {
        shared_->ledger().record()->waits(flight_->ticket, flight_->id.name());
        noted = true;
      }
      shared_->bootstrap->progress();
      std::this_thread::sleep_for(sleep);
      sleep = std::min(sleep * 2, kLongestSleep);
    }
    if (noted) shared_->ledger().record()->waited();
    shared_->ledger().waited_for(flight_->id.name(), start);
  }

 private:
  std::shared_ptr<Shared> shared_;
  Channel& channel_;  ///< shared_'s
  std::shared_ptr<Flight> flight_;
};

/// Nothing to send: the library is not asked.
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
      fmt::format("{}'s communicator for {} of '{}', rank {} of {},", shared.api->name(),
                  kind, shared.bootstrap->name(), place.rank, place.size);
  if (text.size() != id.size()) {
    throw TemporaryError("comm", what +
                                     " got no unique id on rank 0; look at its network "
                                     "interfaces (for NCCL: NCCL_SOCKET_IFNAME)");
  }
  std::memcpy(id.data(), text.data(), id.size());
  Channel channel;
  shared.check_device(shared.api->create_stream(channel.stream), "making a stream");
  shared.settle(shared.api->init_rank(channel.comm, place.size, id, place.rank), channel,
                what);
  return channel;
}

/// What a rank sends in a ring that passes every byte on once.
int64_t ring_bytes(size_t whole, int ranks) {
  return static_cast<int64_t>(whole / static_cast<size_t>(ranks)) * (ranks - 1);
}

}  // namespace

DeviceCommunicator::DeviceCommunicator(std::shared_ptr<DeviceApi> api,
                                       std::shared_ptr<Communicator> bootstrap,
                                       int device, const DeviceOptions& options)
    : bootstrap_(std::move(bootstrap)),
      place_{bootstrap_->rank(), bootstrap_->size()},
      shared_(std::make_shared<Shared>()) {
  shared_->api = std::move(api);
  shared_->bootstrap = bootstrap_;
  shared_->device = device;
  shared_->options = options;
  shared_->take_device();
  shared_->collectives = open_channel(*shared_, place_, "collectives");
  shared_->transfers = open_channel(*shared_, place_, "transfers");
}

DeviceCommunicator::~DeviceCommunicator() = default;

WorkPtr DeviceCommunicator::start(Verb verb, size_t bytes, int64_t sent,
                                  const std::function<int(const Channel&)>& enqueue) {
  const bool transfer = verb == Verb::SendRecv;
  const int64_t number = ++(transfer ? transfers_started_ : started_);
  const Tally tally{counts_, ledger().counts_of(name()), verb};
  tally.call();
  tally.sent(static_cast<size_t>(sent));
  if (bytes == 0) return std::make_unique<DoneWork>();
  Shared& shared = *shared_;
  Channel& channel = transfer ? shared.transfers : shared.collectives;
  shared.take_device();
  shared.reap(channel);
  auto flight = std::make_shared<Flight>(
      Flight{OperationId{verb, number, bytes, name(), ledger().label(), place_},
             shared.mark(shared.compute_stream())});
  shared.check_device(shared.api->stream_waits(channel.stream, flight->ready),
                      "ordering a stream");
  shared.settle(enqueue(channel), channel, flight->id.text());
  flight->end = shared.mark(channel.stream);
  ledger().count_under_way(1);
  if (RankRecord* record = ledger().record(); record != nullptr && !ledger().polls()) {
    flight->ticket = record->started(flight->id.name());
  }
  channel.flights.push_back(flight);
  return std::make_unique<DeviceWork>(shared_, channel, std::move(flight));
}

void DeviceCommunicator::progress() {
  bootstrap_->progress();
  shared_->look();
}

WorkPtr DeviceCommunicator::all_reduce(Buffer buffer, ReduceOp op) {
  check_buffer("all_reduce", buffer);
  check_reducible("all_reduce", buffer.dtype);
  return start(Verb::AllReduce, buffer.bytes(), 2 * ring_bytes(buffer.bytes(), size()),
               [&](const Channel& channel) {
                 return shared_->api->all_reduce(
                     buffer.data, buffer.data, static_cast<size_t>(buffer.count),
                     buffer.dtype, op, channel.comm, channel.stream);
               });
}

WorkPtr DeviceCommunicator::all_gather(ConstBuffer in, Buffer out) {
  check_pair("all_gather", in, 1, out, size());
  return start(Verb::AllGather, out.bytes(), ring_bytes(out.bytes(), size()),
               [&](const Channel& channel) {
                 return shared_->api->all_gather(in.data, out.data, in.bytes(),
                                                 channel.comm, channel.stream);
               });
}

WorkPtr DeviceCommunicator::reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) {
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

WorkPtr DeviceCommunicator::all_to_all(ConstBuffer in, Buffer out) {
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

WorkPtr DeviceCommunicator::broadcast(Buffer buffer, int root) {
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

WorkPtr DeviceCommunicator::send_recv(std::vector<Transfer> transfers) {
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

WorkPtr DeviceCommunicator::barrier() {
  ++counts_[Verb::Barrier].calls;
  return bootstrap_->barrier();
}

std::unique_ptr<Communicator> DeviceCommunicator::split(int color, int key,
                                                        std::string name) {
  return std::make_unique<DeviceCommunicator>(
      shared_->api, bootstrap_->split(color, key, std::move(name)), shared_->device,
      shared_->options);
}

void DeviceCommunicator::abort(int exit_code) {
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

std::vector<std::string> DeviceCommunicator::gather_strings(const std::string& mine) {
  return bootstrap_->gather_strings(mine);
}

std::string DeviceCommunicator::broadcast_string(const std::string& value, int root) {
  return bootstrap_->broadcast_string(value, root);
}

bool DeviceCommunicator::any(bool mine) { return bootstrap_->any(mine); }

}  // namespace longhaul::comm
