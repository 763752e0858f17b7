#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <utility>

#include "longhaul/comm/device_api.h"
#include "tests/accelerator/counters.h"
#include "tests/accelerator/group.h"
#include "tests/accelerator/memory.h"
#include "tests/accelerator/operation.h"
#include "tests/accelerator/planted.h"
#include "tests/accelerator/streams.h"

// The operations between ranks, as comm::DeviceCommunicator calls them.

namespace longhaul::softdev {
namespace {

using Api = comm::DeviceApi;
using comm::ReduceOp;

constexpr int kInvalidArgument = 4;
constexpr int kInvalidUsage = 5;
constexpr int kRemoteError = 6;
constexpr int kInvalidDevice = 101;
/// A host that asks so many times in a row whether an operation is over counts as one
/// that waits. A host that looks at several operations in turn asks less often.
constexpr int kAskedByWhoWaits = 6;

/// A communicator, with the stream that its last operation went into.
struct DeviceGroup {
  Group group;
  std::atomic<Stream*> stream = nullptr;
  std::atomic<uint64_t> collectives = 0;
  /// Questions that are still answered with kInProgress after the last call.
  std::atomic<int64_t> in_progress = 0;

  /// Returns what a call that has succeeded returns.
  int answer() {
    in_progress = setting("SOFTDEV_IN_PROGRESS", 0);
    return in_progress > 0 ? Api::kInProgress : Api::kSuccess;
  }
};

DeviceGroup& of(Api::Comm comm) { return *static_cast<DeviceGroup*>(comm); }

Stream& of_stream(Api::Stream stream) {
  return stream == nullptr ? stream_of(current_device(), 0)
                           : *static_cast<Stream*>(stream);
}

struct Pending {
  DeviceGroup* group;
  Stream* stream;
  GroupTransfer transfer;
  Use use;
};

// The state between a thread's group_start and group_end.
thread_local int group_depth = 0;
thread_local std::vector<Pending> pending_transfers;
thread_local bool group_in_progress = false;  ///< it makes a communicator

/// Reports memory that the stream's device cannot reach.
bool reachable(const std::string& name, const Stream& stream, std::span<const Use> uses) {
  if (setting("SOFTDEV_HOST_BUFFERS", 0) != 0) return true;
  const std::lock_guard lock(state_mutex());
  for (const Use& use : uses) {
    const Block* block = block_of(use.data);
    if (block != nullptr && block->device == stream.device) continue;
    report(fmt::format("{} on {}: its buffer is no memory of the device", name,
                       stream.name()));
    return false;
  }
  return true;
}

/// Stops this rank for good where a fault is planted here. With the fault "stop" the
/// process stops as by SIGSTOP; with "stall" returns true: the device is never to begin
/// the operation. Tells the ranks of the group, which run ahead from then on.
bool stops_here(const Group& group, const Stream& stream) {
  const bool stops = planted_stop("stop", stream.device);
  const bool stalls = !stops && planted_stop("stall", stream.device);
  if (!stops && !stalls) return false;
  stands_still() = true;
  group.segment().stand_still();
  if (stops) ::raise(SIGSTOP);
  return stalls;
}

void wait_for_ever(const Group& group) {
  group.wait_until([] { return false; });
}

/// Writes the name that other processes see, cut to its room.
void set_text(Shown& shown, const std::string& text) {
  const size_t length = std::min(text.size(), shown.text.size() - 1);
  std::memcpy(shown.text.data(), text.data(), length);
}

std::string group_text(const Group& group) {
  std::string text = fmt::format("rank {} of {} in group {:04x}", group.rank(),
                                 group.ranks(), group.id() & 0xFFFF);
  if (!thread_label().empty()) text += ", " + thread_label();
  return text;
}

enum CollectiveKind { kAllReduce, kAllGather, kReduceScatter, kBroadcast };

/// Puts a collective into its stream.
template <typename Run>
int start(Api::Comm comm, Api::Stream handle, const char* verb, Headline headline,
          std::span<const Use> uses, const Run& run) {
  DeviceGroup& on = of(comm);
  if (on.in_progress > 0) return kInvalidUsage;
  Stream& stream =
      planted("wrong_stream") ? new_stream(current_device()) : of_stream(handle);
  stream.queue.make_room();
  const bool stalls = stops_here(on.group, stream);
  Member& mine = on.group.segment().member(on.group.rank());
  mine.thread = board_thread();
  headline.number = ++on.collectives;
  Shown shown;
  shown.kind = Shown::Kind::Collective;
  shown.rank = on.group.rank();
  shown.group = on.group.id();
  shown.number = headline.number;
  const std::string text =
      fmt::format("{} number {} ({} bytes), {}", verb, headline.number, headline.bytes,
                  group_text(on.group));
  set_text(shown, text);
  if (!reachable(text, stream, uses)) return kInvalidArgument;
  const std::lock_guard lock(state_mutex());
  note_operation(stream, text, uses);
  ++counters().collectives;
  on.stream = &stream;
  stream.queue.put({shown}, [&group = on.group, headline, text, run, stalls] {
    if (stalls) wait_for_ever(group);
    group.begin(headline, text);
    run(group);
  });
  mine.issued = headline.number;
  return on.answer();
}

/// Puts transfers that run together into the stream of the first one.
int start_transfers(std::vector<Pending> all) {
  Stream& stream = *all.front().stream;
  stream.queue.make_room();
  const Group& first = all.front().group->group;
  const bool stalls = stops_here(first, stream);
  std::vector<Shown> shown;
  std::vector<Use> uses;
  std::vector<GroupTransfer> transfers;
  std::string name;
  for (Pending& part : all) {
    const Group& group = part.group->group;
    GroupTransfer& t = part.transfer;
    const Segment& segment = group.segment();
    segment.member(group.rank()).thread = board_thread();
    Mailbox& box = t.sends ? segment.mailbox(group.rank(), t.peer)
                           : segment.mailbox(t.peer, group.rank());
    // The transfer's number is known here. Other ranks see it when the transfer stands in
    // the stream.
    uint64_t& mine = t.number;
    mine = (t.sends ? box.sends_issued : box.recvs_issued).load() + 1;
    for (const GroupTransfer& earlier : transfers) {
      if (earlier.group == t.group && earlier.sends == t.sends &&
          earlier.peer == t.peer) {
        ++mine;
      }
    }
    Shown each;
    each.kind = t.sends ? Shown::Kind::Send : Shown::Kind::Recv;
    each.rank = group.rank();
    each.peer = t.peer;
    each.group = group.id();
    each.number = t.number;
    const std::string text = fmt::format("{} rank {} number {} ({} bytes), {}",
                                         t.sends ? "send to" : "receive from", t.peer,
                                         t.number, t.bytes, group_text(group));
    set_text(each, text);
    if (name.empty()) name = text;
    shown.push_back(each);
    uses.push_back(part.use);
    transfers.push_back(t);
    part.group->stream = &stream;
  }
  if (!reachable(name, stream, uses)) return kInvalidArgument;
  const std::lock_guard lock(state_mutex());
  note_operation(stream, name, uses);
  ++counters().collectives;
  stream.queue.put(std::move(shown), [transfers, &first, stalls]() mutable {
    if (stalls) wait_for_ever(first);
    run_transfers(transfers);
  });
  for (const GroupTransfer& t : transfers) {
    const Segment& segment = t.group->segment();
    ++(t.sends ? segment.mailbox(t.group->rank(), t.peer).sends_issued
               : segment.mailbox(t.peer, t.group->rank()).recvs_issued);
  }
  int result = Api::kSuccess;
  for (const Pending& part : all) result = part.group->answer();
  return result;
}

/// Writes how a rank is connected, as NCCL does where its variables ask for a log. The
/// way is that of SOFTDEV_WAY.
void log_way(int ranks, int rank) {
  const char* const file = std::getenv("NCCL_DEBUG_FILE");
  const char* const level = std::getenv("NCCL_DEBUG");
  if (file == nullptr || level == nullptr || std::string(level) != "INFO") return;
  const char* const way = std::getenv("SOFTDEV_WAY");
  std::ofstream(file, std::ios::app)
      << fmt::format("NCCL INFO Channel 00/0 : {}[0] -> {}[0] via {}\n", rank,
                     (rank + 1) % ranks, way != nullptr ? way : "SHM/direct/direct");
}

class Collectives final : public Api {
 public:
  std::string name() const override { return "softdev"; }
  std::string describe() const override { return "softdev, sums in rank order"; }
  int unique_id(UniqueId& id) override {
    const std::string text = Group::make_id();
    id.fill('\0');
    std::memcpy(id.data(), text.data(), text.size());
    return kSuccess;
  }
  int init_rank(Comm& comm, const Members& members) override {
    ++counters().communicators;
    auto* const made = new DeviceGroup{
        Group(std::string(members.ids.front().data()), members.ranks, members.rank)};
    comm = made;
    log_way(members.ranks, members.rank);
    const int result = made->answer();
    if (group_depth > 0) group_in_progress = result == kInProgress;
    return result;
  }
  int all_reduce(const void* in, void* out, size_t count, format::DType dtype,
                 ReduceOp op, Comm comm, Stream stream) override {
    const size_t bytes = count * format::dtype_size(dtype);
    const std::vector<Use> uses{{in, bytes, false}, {out, bytes, true}};
    return start(comm, stream, "all_reduce", headline(kAllReduce, bytes, dtype, op), uses,
                 [from = kernel_address(in), to = kernel_address(out), count, dtype,
                  op](Group& group) { group.all_reduce(from, to, count, dtype, op); });
  }
  int all_gather(const void* in, void* out, size_t bytes, Comm comm,
                 Stream stream) override {
    const auto ranks = static_cast<size_t>(of(comm).group.ranks());
    // A rank's own part is only read where it already lies in the result.
    const auto* first = static_cast<const std::byte*>(out);
    const auto own = static_cast<size_t>(of(comm).group.rank()) * bytes;
    const bool in_place = in == first + own;
    std::vector<Use> uses{{in, bytes, false}};
    if (!in_place) {
      uses.push_back({out, bytes * ranks, true});
    } else {
      uses.push_back({first, own, true});
      uses.push_back({first + own + bytes, (ranks - 1) * bytes - own, true});
    }
    std::erase_if(uses, [](const Use& use) { return use.bytes == 0; });
    return start(comm, stream, "all_gather", headline(kAllGather, bytes), uses,
                 [from = kernel_address(in), to = kernel_address(out),
                  bytes](Group& group) { group.all_gather(from, to, bytes); });
  }
  int reduce_scatter(const void* in, void* out, size_t count, format::DType dtype,
                     ReduceOp op, Comm comm, Stream stream) override {
    const size_t bytes = count * format::dtype_size(dtype);
    const auto ranks = static_cast<size_t>(of(comm).group.ranks());
    const std::vector<Use> uses{{in, bytes * ranks, false}, {out, bytes, true}};
    return start(
        comm, stream, "reduce_scatter", headline(kReduceScatter, bytes, dtype, op), uses,
        [from = kernel_address(in), to = kernel_address(out), count, dtype,
         op](Group& group) { group.reduce_scatter(from, to, count, dtype, op); });
  }
  int broadcast(void* buffer, size_t bytes, int root, Comm comm, Stream stream) override {
    Headline line = headline(kBroadcast, bytes);
    line.root = root;
    const std::vector<Use> uses{{buffer, bytes, of(comm).group.rank() != root}};
    return start(comm, stream, "broadcast", line, uses,
                 [at = kernel_address(buffer), bytes, root](Group& group) {
                   group.broadcast(at, bytes, root);
                 });
  }
  int send(const void* data, size_t bytes, int peer, Comm comm, Stream stream) override {
    return transfer(true, data, bytes, peer, comm, stream);
  }
  int recv(void* data, size_t bytes, int peer, Comm comm, Stream stream) override {
    return transfer(false, data, bytes, peer, comm, stream);
  }
  int group_start() override {
    ++group_depth;
    return kSuccess;
  }
  int group_end() override {
    if (--group_depth > 0) return kSuccess;
    std::vector<Pending> left = std::exchange(pending_transfers, {});
    int worst = kSuccess;
    while (!left.empty()) {
      softdev::Stream* stream = left.front().stream;
      std::vector<Pending> together;
      std::erase_if(left, [&](const Pending& part) {
        if (part.stream != stream) return false;
        together.push_back(part);
        return true;
      });
      const auto sends = std::ranges::stable_partition(
          together, [](const Pending& part) { return !part.transfer.sends; });
      const bool both = sends.begin() != together.begin() && !sends.empty();
      if (both && planted("early_receive")) {
        start_transfers({together.begin(), sends.begin()});
        together.erase(together.begin(), sends.begin());
      }
      const int result = start_transfers(std::move(together));
      if (result != kSuccess && (worst == kSuccess || worst == kInProgress)) {
        worst = result;
      }
    }
    const bool in_progress = std::exchange(group_in_progress, false);
    return in_progress && worst == kSuccess ? kInProgress : worst;
  }
  int async_error(Comm comm, int& state) override {
    std::atomic<int64_t>& left = of(comm).in_progress;
    if (left > 0 && failure_of(comm).empty()) {
      --left;
      state = kInProgress;
      return kSuccess;
    }
    state = failure_of(comm).empty() ? kSuccess : kRemoteError;
    return kSuccess;
  }
  std::string error_text(int result, Comm comm) override {
    if (result == kInvalidUsage) return "a call while another is in progress";
    const std::string failure = comm == nullptr ? "" : failure_of(comm);
    return failure.empty() ? fmt::format("result {}", result) : failure;
  }

  int set_device(int device) override {
    if (device < 0 || device >= device_count()) return kInvalidDevice;
    set_current_device(device);
    return 0;
  }
  int create_stream(Stream& stream) override {
    need_device("a stream is made");
    stream_of(current_device(), 0);
    stream = &new_stream(current_device());
    return 0;
  }
  int create_event(Event& event) override {
    need_device("an event is made");
    event = new softdev::Event;
    return 0;
  }
  int record(Event event, Stream stream) override {
    need_device("an event is recorded");
    ++requests_of_thread();
    auto& mark = *static_cast<softdev::Event*>(event);
    mark.asked_in_vain = 0;
    softdev::record(mark, of_stream(stream));
    return 0;
  }
  int stream_waits(Stream stream, Event event) override {
    need_device("a stream waits for an event");
    wait_event(of_stream(stream), *static_cast<softdev::Event*>(event));
    return 0;
  }
  int is_done(Event event, bool& done) override {
    need_device("an event is asked");
    auto& asked = *static_cast<softdev::Event*>(event);
    done = query(asked);
    if (std::exchange(asked.since, requests_of_thread()) != requests_of_thread()) {
      asked.asked_in_vain = 0;
    }
    if (!done && ++asked.asked_in_vain == kAskedByWhoWaits) {
      count_synchronization("event of a group");
    }
    return 0;
  }
  std::string device_text(int result) override {
    return result == kInvalidDevice ? "invalid device ordinal"
                                    : fmt::format("error {}", result);
  }

 private:
  static Headline headline(CollectiveKind kind, size_t bytes,
                           format::DType dtype = format::DType::U8,
                           ReduceOp op = ReduceOp::Sum) {
    Headline line;
    line.kind = kind;
    line.bytes = bytes;
    line.dtype = static_cast<int32_t>(dtype);
    line.op = static_cast<int32_t>(op);
    return line;
  }
  static std::string failure_of(Comm comm) {
    const std::string failure = of(comm).group.segment().failure();
    softdev::Stream* stream = of(comm).stream;
    return failure.empty() && stream != nullptr ? stream->queue.failure() : failure;
  }
  static int transfer(bool sends, const void* data, size_t bytes, int peer, Comm comm,
                      Stream stream) {
    if (of(comm).in_progress > 0) return kInvalidUsage;
    Pending part;
    part.group = &of(comm);
    part.stream = &of_stream(stream);
    part.use = {data, bytes, !sends};
    part.transfer.group = &part.group->group;
    part.transfer.sends = sends;
    part.transfer.peer = peer;
    part.transfer.data = kernel_address(data);
    part.transfer.bytes = bytes;
    if (group_depth == 0) return start_transfers({part});
    pending_transfers.push_back(part);
    return kSuccess;
  }
};

}  // namespace
}  // namespace longhaul::softdev

#pragma GCC visibility push(default)
extern "C" {

/// Returns the collectives of the process, which are never deleted; null where the
/// process is to have none.
longhaul::comm::DeviceApi* longhaul_device_collectives() {
  if (longhaul::softdev::setting("SOFTDEV_NO_COLLECTIVES", 0) != 0) return nullptr;
  static auto* const made = new longhaul::softdev::Collectives;
  return made;
}

}  // extern "C"
#pragma GCC visibility pop
