#include "longhaul/comm/device_communicator.h"

#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::comm {
namespace {

using layout::Uses;
using Api = DeviceApi;

}  // namespace

struct DeviceCommunicator::Flight {
  OperationEntry entry;
  Api::Event ready = nullptr;  ///< reached when the device comes to the operation
  Api::Event end = nullptr;    ///< reached when the device has ended the operation
  bool done = false;
  /// When the host first saw that the device had come to the operation.
  std::optional<Ledger::Clock::time_point> since_ready = {};
};

struct DeviceCommunicator::Channel {
  Api::Comm comm = nullptr;
  Api::Stream stream = nullptr;
  /// Operations that have not ended, in the order of the stream.
  std::deque<std::shared_ptr<Flight>> flights = {};
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
    fail_temporary(
        "comm",
        "{} failed: {}; the device is lost or out of memory: look at the machine's log",
        what, api->device_text(result));
  }
  void check(int result, const std::string& what, Api::Comm comm) {
    if (result == Api::kSuccess) return;
    fail_temporary("comm",
                   "{}{} failed: {}: {}; a rank, its device or its network is lost: look "
                   "for the first failure in the other ranks' logs",
                   ledger().where(), what, api->name(), api->error_text(result, comm));
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
  /// Returns an event behind everything that has been put into the stream so far.
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
  /// Removes the operations that the device has ended.
  void reap(Channel& channel) {
    while (!channel.flights.empty() && reached(channel.flights.front()->end)) {
      Flight& flight = *channel.flights.front();
      flight.done = true;
      spare_events.insert(spare_events.end(), {flight.ready, flight.end});
      flight.entry.ended();
      channel.flights.pop_front();
    }
  }
  /// Throws if the first operation of the stream has failed or takes too long. The time
  /// of an operation counts from when the device has come to it.
  void check_first(Channel& channel) {
    if (channel.flights.empty()) return;
    Flight& first = *channel.flights.front();
    const auto now = Ledger::Clock::now();
    const std::string what = first.entry.id().text();
    state_of(channel, what);
    check_wait(ledger(), limits(), first.since_ready.value_or(now), [&] { return what; });
    if (!first.since_ready && reached(first.ready)) first.since_ready = now;
  }
  void look() {
    take_device();
    for (Channel* channel : {&collectives, &transfers}) {
      reap(*channel);
      check_first(*channel);
    }
  }
  /// Returns what the library says of the channel's calls: kSuccess, or kInProgress while
  /// the library is still carrying out a call. Throws if a call has failed.
  int state_of(const Channel& channel, const std::string& what) {
    int state = Api::kSuccess;
    check(api->async_error(channel.comm, state), what, channel.comm);
    if (state != Api::kInProgress) check(state, what, channel.comm);
    return state;
  }
  /// Waits until a call of the library, which gave `result`, is carried out: a call
  /// returns earlier, and no other call may follow until then.
  void settle(int result, const Channel& channel, const std::string& what) {
    if (result != Api::kInProgress) return check(result, what, channel.comm);
    const auto start = Ledger::Clock::now();
    wait_for_device([&] { return state_of(channel, what) != Api::kInProgress; },
                    [&] {
                      check_wait(ledger(), limits(), start, [&] { return what; });
                      bootstrap->progress();
                    },
                    options.clock);
  }
};

namespace {

using Shared = DeviceCommunicator::Shared;
using Channel = DeviceCommunicator::Channel;
using Flight = DeviceCommunicator::Flight;

/// An operation in its stream. It is done when the device has reached the event behind
/// it.
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
    wait_for_device([&] { return test(); },
                    [&] {
                      flight_->entry.waits();
                      shared_->bootstrap->progress();
                    },
                    shared_->options.clock);
    flight_->entry.waited(start);
  }

 private:
  std::shared_ptr<Shared> shared_;
  Channel& channel_;  ///< a channel of shared_
  std::shared_ptr<Flight> flight_;
};

/// Returns the bytes that a rank sends in a ring that passes every byte on once.
int64_t ring_bytes(size_t whole, int ranks) {
  return static_cast<int64_t>(whole / static_cast<size_t>(ranks)) * (ranks - 1);
}

/// Starts sends and receives together: two ranks that send to each other one by one would
/// wait for each other. Closes the group even if a call fails, and then returns the
/// result of that call.
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

/// Returns the transfers that make up an all_to_all.
std::vector<Transfer> exchanges(const ConstBuffer& in, const Buffer& out, int ranks) {
  const int64_t count = in.count / ranks;
  std::vector<Transfer> transfers;
  for (int r = 0; r < ranks; ++r) {
    const size_t at = static_cast<size_t>(r) * (in.bytes() / static_cast<size_t>(ranks));
    // A send only reads its buffer, though the interface has no const.
    auto* from = const_cast<std::byte*>(static_cast<const std::byte*>(in.data) + at);
    auto* to = static_cast<std::byte*>(out.data) + at;
    transfers.push_back({Transfer::Kind::Send, r, {from, count, in.dtype}});
    transfers.push_back({Transfer::Kind::Recv, r, {to, count, in.dtype}});
  }
  return transfers;
}

/// Puts the operation into the channel's stream. Returns the library's result.
int enqueue(Api& api, const Request& r, const Channel& channel, int ranks) {
  const Api::Comm comm = channel.comm;
  const Api::Stream stream = channel.stream;
  const auto count = static_cast<size_t>(r.out.count);
  switch (r.verb) {
    case Verb::AllReduce:
      return api.all_reduce(r.in.data, r.out.data, count, r.in.dtype, r.op, comm, stream);
    case Verb::AllGather:
      return api.all_gather(r.in.data, r.out.data, r.in.bytes(), comm, stream);
    case Verb::ReduceScatter:
      return api.reduce_scatter(r.in.data, r.out.data, count, r.in.dtype, r.op, comm,
                                stream);
    case Verb::Broadcast:
      return api.broadcast(r.out.data, r.out.bytes(), r.root, comm, stream);
    case Verb::AllToAll:
      return grouped(api, channel, exchanges(r.in, r.out, ranks));
    default:
      return grouped(api, channel, r.transfers);
  }
}

}  // namespace

int64_t sent_in_rings(const Request& request, GroupRank place) {
  const size_t bytes = request.bytes();
  int64_t sent = 0;
  switch (request.verb) {
    case Verb::AllReduce:
      return 2 * ring_bytes(bytes, place.size);
    case Verb::Broadcast:
      // The last rank of the ring passes nothing on.
      return (place.rank + 1) % place.size == request.root ? 0
                                                           : static_cast<int64_t>(bytes);
    case Verb::SendRecv:
      for (const Transfer& t : request.transfers) {
        if (t.kind == Transfer::Kind::Send)
          sent += static_cast<int64_t>(t.buffer.bytes());
      }
      return sent;
    default:
      return ring_bytes(bytes, place.size);
  }
}

DeviceCommunicator::DeviceCommunicator(std::shared_ptr<DeviceApi> api,
                                       std::shared_ptr<Communicator> bootstrap,
                                       int device, const DeviceOptions& options)
    : OverHost(bootstrap),
      place_{bootstrap->rank(), bootstrap->size()},
      shared_(std::make_shared<Shared>()) {
  shared_->api = std::move(api);
  shared_->bootstrap = std::move(bootstrap);
  shared_->device = device;
  shared_->options = options;
  shared_->take_device();
  if (!options.opens_later) open({this});
}

/// A communicator of the library that is to be made.
struct DeviceCommunicator::Opening {
  Shared* shared;
  Channel* channel;
  Api::Members members;
  std::string what;
};

DeviceCommunicator::Opening DeviceCommunicator::prepare(Channel& channel,
                                                        const char* kind) {
  Shared& shared = *shared_;
  Opening opening{&shared, &channel, {}, {}};
  opening.what = fmt::format("{}'s communicator for {} of '{}', rank {} of {},",
                             shared.api->name(), kind, name(), place_.rank, place_.size);
  Api::Members& members = opening.members;
  members.ranks = place_.size;
  members.rank = place_.rank;
  members.most_blocks = shared.options.most_blocks;
  const int64_t ranks_of_id = shared.api->ranks_of_id();
  for (int64_t root = 0; root < place_.size; root += ranks_of_id) {
    Api::UniqueId id{};
    std::string text;
    if (place_.rank == root && shared.api->unique_id(id) == Api::kSuccess) {
      text.assign(id.begin(), id.end());
    }
    // A root without an id sends an empty text, so that the others do not wait for it.
    text = shared.bootstrap->broadcast_string(text, static_cast<int>(root));
    if (text.size() != id.size()) {
      fail_temporary("comm",
                     "{} got no unique id on rank {}; look at its network interfaces "
                     "(for NCCL: NCCL_SOCKET_IFNAME)",
                     opening.what, root);
    }
    std::memcpy(id.data(), text.data(), id.size());
    members.ids.push_back(id);
  }
  return opening;
}

void DeviceCommunicator::make(std::vector<Opening> all) {
  if (all.empty()) return;
  Api& api = *all.front().shared->api;
  all.front().shared->check(api.group_start(), all.front().what, nullptr);
  std::vector<int> results;
  for (const Opening& opening : all) {
    Shared& shared = *opening.shared;
    shared.check_device(api.create_stream(opening.channel->stream), "making a stream");
    results.push_back(api.init_rank(opening.channel->comm, opening.members));
  }
  const int ended = api.group_end();
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [shared, channel, members, what] = all[i];
    shared->settle(results[i] == Api::kSuccess ? ended : results[i], *channel, what);
  }
}

void DeviceCommunicator::open(const std::vector<DeviceCommunicator*>& groups) {
  std::vector<Opening> all;
  for (DeviceCommunicator* group : groups) {
    Shared& shared = *group->shared_;
    const Uses uses = shared.options.uses;
    if (uses != Uses::Transfers) {
      all.push_back(group->prepare(shared.collectives, "collectives"));
    }
    if (uses != Uses::Collectives) {
      all.push_back(group->prepare(shared.transfers, "transfers"));
    }
  }
  make(std::move(all));
}

DeviceCommunicator::~DeviceCommunicator() = default;

WorkPtr DeviceCommunicator::start(Request request) {
  const Verb verb = request.verb;
  if (verb == Verb::Barrier) {
    ++counts_[verb].calls;
    return host().barrier();
  }
  const int64_t number = numbers_.next(verb);
  const Tally tally{counts_, ledger().counts_of(name()), verb};
  tally.call();
  tally.sent(static_cast<size_t>(sent_in_rings(request, place_)));
  if (request.bytes() == 0) return std::make_unique<DoneWork>();
  Shared& shared = *shared_;
  const bool transfers = verb == Verb::SendRecv;
  Channel& channel = transfers ? shared.transfers : shared.collectives;
  shared.take_device();
  if (channel.comm == nullptr) {
    LH_ASSERT(!transfers, "'{}' was not made for transfers", name());
    make({prepare(channel, "collectives")});
  }
  shared.reap(channel);
  OperationId id{verb, number, request.bytes(), name(), ledger().label(), place_};
  const Api::Event ready = shared.mark(shared.compute_stream());
  shared.check_device(shared.api->stream_waits(channel.stream, ready),
                      "ordering a stream");
  shared.settle(enqueue(*shared.api, request, channel, size()), channel, id.text());
  const Api::Event end = shared.mark(channel.stream);
  auto flight = std::make_shared<Flight>(
      Flight{OperationEntry(ledger(), std::move(id)), ready, end});
  channel.flights.push_back(flight);
  return std::make_unique<DeviceWork>(shared_, channel, std::move(flight));
}

std::optional<uint64_t> DeviceCommunicator::device_bytes() const {
  uint64_t bytes = 0;
  for (const Channel* channel : {&shared_->collectives, &shared_->transfers}) {
    if (channel->comm == nullptr) continue;
    const std::optional<uint64_t> told = shared_->api->device_bytes(channel->comm);
    if (!told) return std::nullopt;
    bytes += *told;
  }
  return bytes;
}

void DeviceCommunicator::progress() {
  OverHost::progress();
  shared_->look();
}

std::unique_ptr<Communicator> DeviceCommunicator::split(int color, int key,
                                                        std::string name) {
  DeviceOptions options = shared_->options;
  options.opens_later = false;
  return std::make_unique<DeviceCommunicator>(
      shared_->api, host().split(color, key, std::move(name)), shared_->device, options);
}

}  // namespace longhaul::comm
