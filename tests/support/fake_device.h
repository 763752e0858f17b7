#pragma once

#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "longhaul/comm/device_communicator.h"
#include "tests/support/fake_ranks.h"

namespace longhaul::comm {

/// The groups in which the ranks of one job of fake devices meet, by unique id.
class FakeMeeting {
 public:
  char new_id() {
    const std::lock_guard lock(mutex_);
    return ++last_id_;
  }
  std::shared_ptr<Communicator> join(char id, int ranks, int rank) {
    const std::lock_guard lock(mutex_);
    auto& world = worlds_[id];
    if (world.empty()) world = fake_world(ranks);
    return world[static_cast<size_t>(rank)];
  }

 private:
  std::mutex mutex_;
  char last_id_ = 0;
  std::map<char, std::vector<std::shared_ptr<Communicator>>> worlds_;
};

/// The library of collectives and the runtime of one rank, on host memory. Operations
/// really take place. A stream is a queue: an operation begins when all operations before
/// it have ended.
class FakeDevice : public DeviceApi {
 public:
  explicit FakeDevice(std::shared_ptr<FakeMeeting> meeting)
      : meeting_(std::move(meeting)) {}

  // A test sets the members below.
  int polls_in_progress = 0;  ///< after each call async_error is in progress this often
  int fails_with = kSuccess;  ///< what async_error says afterwards
  bool stalls = false;        ///< no operation ever ends
  /// The host acts as the device's compute stream, and waits where this stream would
  /// wait.
  bool computes_here = false;
  bool knows_ids = true;
  int ids_for = 1 << 30;                  ///< ranks_of_id()
  std::optional<uint64_t> bytes_of_each;  ///< device_bytes()
  // A test reads the members below.
  int sent_alone = 0;  ///< transfers outside of a group
  std::vector<std::string> log;
  std::set<Stream> collective_streams;
  std::set<Stream> transfer_streams;
  int made_events = 0;
  int recorded_compute = 0;
  int compute_waits = 0;
  std::vector<Members> made;  ///< the communicators
  /// How communicators were made: "begin" for each, "wait" for each question.
  std::vector<std::string> openings;

  std::string name() const override { return "fake"; }
  std::string describe() const override { return "fake 1"; }
  int unique_id(UniqueId& id) override {
    if (!knows_ids) return 2;
    id.fill(0);
    id[0] = meeting_->new_id();
    return kSuccess;
  }
  int ranks_of_id() const override { return ids_for; }
  int init_rank(Comm& comm, const Members& members) override {
    made.push_back(members);
    openings.emplace_back("begin");
    groups_.push_back(std::make_unique<Group>());
    groups_.back()->ranks =
        meeting_->join(members.ids[0][0], members.ranks, members.rank);
    comm = groups_.back().get();
    return answer();
  }
  int all_reduce(const void* in, void* out, size_t count, format::DType dtype,
                 ReduceOp op, Comm comm, Stream stream) override {
    log.emplace_back("all_reduce");
    collective_streams.insert(stream);
    return put(stream, [=, &ranks = *of(comm).ranks] {
      if (in != out) std::memcpy(out, in, count * format::dtype_size(dtype));
      return ranks.all_reduce({out, static_cast<int64_t>(count), dtype}, op);
    });
  }
  int all_gather(const void* in, void* out, size_t bytes, Comm comm,
                 Stream stream) override {
    const auto n = static_cast<int64_t>(bytes);
    return put(stream, [=, &ranks = *of(comm).ranks] {
      return ranks.all_gather({in, n, format::DType::U8},
                              {out, n * ranks.size(), format::DType::U8});
    });
  }
  int reduce_scatter(const void* in, void* out, size_t count, format::DType dtype,
                     ReduceOp op, Comm comm, Stream stream) override {
    const auto n = static_cast<int64_t>(count);
    return put(stream, [=, &ranks = *of(comm).ranks] {
      return ranks.reduce_scatter({in, n * ranks.size(), dtype}, {out, n, dtype}, op);
    });
  }
  int broadcast(void* buffer, size_t bytes, int root, Comm comm, Stream stream) override {
    const auto n = static_cast<int64_t>(bytes);
    return put(stream, [=, &ranks = *of(comm).ranks] {
      return ranks.broadcast({buffer, n, format::DType::U8}, root);
    });
  }
  int send(const void* data, size_t bytes, int peer, Comm comm, Stream stream) override {
    return transfer(Transfer::Kind::Send, const_cast<void*>(data), bytes, peer, comm,
                    stream);
  }
  int recv(void* data, size_t bytes, int peer, Comm comm, Stream stream) override {
    return transfer(Transfer::Kind::Recv, data, bytes, peer, comm, stream);
  }
  int group_start() override {
    in_group_ = true;
    return kSuccess;
  }
  int group_end() override {
    in_group_ = false;
    for (const auto& group : groups_) {
      const Stream stream = std::exchange(group->pending_stream, nullptr);
      if (stream == nullptr) continue;
      put(stream, [pending = std::exchange(group->pending, {}),
                   to_self = std::exchange(group->to_self, {}),
                   by_self = std::exchange(group->by_self, {}), &ranks = *group->ranks] {
        for (size_t i = 0; i < to_self.size(); ++i) {
          std::memcpy(by_self.at(i).data, to_self[i].data, to_self[i].bytes());
        }
        return ranks.send_recv(pending);
      });
    }
    return answer();
  }
  int async_error(Comm, int& state) override {
    openings.emplace_back("wait");
    state = polls_left_ > 0 ? kInProgress : fails_with;
    if (polls_left_ > 0) --polls_left_;
    return kSuccess;
  }
  std::string error_text(int result, Comm) override {
    return "result " + std::to_string(result);
  }

  std::optional<uint64_t> device_bytes(Comm) override { return bytes_of_each; }

  int set_device(int device) override { return device == 7 ? 0 : 101; }
  int create_stream(Stream& stream) override {
    queues_.push_back(std::make_unique<Queue>());
    stream = queues_.back().get();
    return 0;
  }
  int create_event(Event& event) override {
    events_.push_back(std::make_unique<Place>());
    event = events_.back().get();
    ++made_events;
    return 0;
  }
  int record(Event event, Stream stream) override {
    if (stream == nullptr) ++recorded_compute;
    const Queue& queue = queue_of(stream);
    *static_cast<Place*>(event) = {&queue, queue.ended + queue.items.size()};
    return 0;
  }
  int stream_waits(Stream stream, Event event) override {
    if (stream == nullptr) ++compute_waits;
    queue_of(stream).items.push_back({.until = *static_cast<Place*>(event)});
    return stream == nullptr && computes_here ? wait_for(event) : 0;
  }
  int is_done(Event event, bool& done) override {
    while (advance()) {
    }
    done = static_cast<Place*>(event)->reached();
    return 0;
  }
  std::string device_text(int result) override {
    return "error " + std::to_string(result);
  }

 private:
  struct Queue;
  /// The place behind the first `count` items of a queue.
  struct Place {
    const Queue* queue = nullptr;
    size_t count = 0;
    bool reached() const { return queue == nullptr || queue->ended >= count; }
  };
  /// An operation, or the wait for an event.
  struct Item {
    Place until = {};
    std::function<WorkPtr()> begin = {};
    std::shared_ptr<Work> work = {};
  };
  struct Queue {
    std::deque<Item> items;
    size_t ended = 0;
  };
  struct Group {
    std::shared_ptr<Communicator> ranks;
    std::vector<Transfer> pending;
    std::vector<Buffer> to_self;
    std::vector<Buffer> by_self;
    Stream pending_stream = nullptr;
  };

  /// Waits for an event. Returns 1 where the wait takes longer than any test should.
  int wait_for(Event event) {
    const auto begin = std::chrono::steady_clock::now();
    for (bool done = false; !done;) {
      is_done(event, done);
      if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(20)) return 1;
      std::this_thread::yield();
    }
    return 0;
  }

  static Group& of(Comm comm) { return *static_cast<Group*>(comm); }
  Queue& queue_of(Stream stream) {
    return stream == nullptr ? compute_ : *static_cast<Queue*>(stream);
  }
  int answer() {
    polls_left_ = polls_in_progress;
    return polls_left_ > 0 ? kInProgress : kSuccess;
  }
  int put(Stream stream, std::function<WorkPtr()> begin) {
    queue_of(stream).items.push_back({.begin = std::move(begin)});
    return answer();
  }
  /// Returns true if the first item of any queue has ended.
  bool advance() {
    bool moved = advance(compute_);
    for (const auto& queue : queues_) moved = (!stalls && advance(*queue)) || moved;
    return moved;
  }
  static bool advance(Queue& queue) {
    if (queue.items.empty()) return false;
    Item& first = queue.items.front();
    if (first.begin && !first.work) first.work = first.begin();
    if (first.work ? !first.work->test() : !first.until.reached()) return false;
    queue.items.pop_front();
    ++queue.ended;
    return true;
  }
  int transfer(Transfer::Kind kind, void* data, size_t bytes, int peer, Comm comm,
               Stream stream) {
    if (!in_group_) ++sent_alone;
    transfer_streams.insert(stream);
    Group& group = of(comm);
    group.pending_stream = stream;
    const Buffer buffer{data, static_cast<int64_t>(bytes), format::DType::U8};
    // NCCL also carries what a rank sends to itself.
    if (peer == group.ranks->rank()) {
      (kind == Transfer::Kind::Send ? group.to_self : group.by_self).push_back(buffer);
    } else {
      group.pending.push_back({kind, peer, buffer});
    }
    return kSuccess;
  }

  std::shared_ptr<FakeMeeting> meeting_;
  std::vector<std::unique_ptr<Group>> groups_;
  Queue compute_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::vector<std::unique_ptr<Place>> events_;
  bool in_group_ = false;
  int polls_left_ = 0;
};

using FakeDeviceBody = std::function<void(DeviceCommunicator&, FakeDevice&)>;

/// Runs `body` on every rank over fakes that `prepare` may change first.
inline void run_fake_devices(
    int ranks, const FakeDeviceBody& body, const CommOptions& limits = {},
    const std::function<void(FakeDevice&, int rank)>& prepare = {},
    const DeviceOptions& options = {}) {
  const auto meeting = std::make_shared<FakeMeeting>();
  run_fake_ranks(
      ranks,
      [&](const std::shared_ptr<Communicator>& world) {
        const auto fake = std::make_shared<FakeDevice>(meeting);
        if (prepare) prepare(*fake, world->rank());
        DeviceCommunicator group(fake, world, /*device=*/7, options);
        body(group, *fake);
      },
      limits);
}

}  // namespace longhaul::comm
