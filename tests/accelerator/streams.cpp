#include "tests/accelerator/streams.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "longhaul/base/error.h"
#include "tests/accelerator/counters.h"
#include "tests/accelerator/planted.h"

namespace longhaul::softdev {
namespace {

constexpr int kMostDevices = 64;

/// How often a thread that waits looks whether the ranks stand still.
constexpr auto kLook = std::chrono::milliseconds(20);

/// Streams and queues are never deleted: their threads may outlive main.
struct Streams {
  std::vector<Stream*> all;
  size_t queues = 0;
  std::array<std::vector<Stream*>, kMostDevices> of_device;
  Clock host;
  void (*after_host_saw)() = nullptr;
};

Streams& streams() {
  static auto* const made = new Streams;
  return *made;
}

constexpr int kNone = -1;
thread_local int device_of_thread = kNone;
thread_local bool has_chosen = false;
thread_local const Queue* queue_of_worker = nullptr;
thread_local std::array<Stream*, kMostDevices> stream_of_thread{};

void check_device(int device) {
  if (device >= 0 && device < device_count()) return;
  throw Error(ErrorKind::Internal, "softdev",
              fmt::format("device {} of {}: invalid ordinal", device, device_count()));
}

}  // namespace

std::recursive_mutex& state_mutex() {
  static auto* const mutex = new std::recursive_mutex;
  return *mutex;
}

int device_count() {
  static const int count =
      static_cast<int>(std::clamp<int64_t>(setting("SOFTDEV_COUNT", 1), 0, kMostDevices));
  return count;
}

int current_device() { return std::max(device_of_thread, 0); }

void set_current_device(int device) {
  lend_device(device);
  has_chosen = true;
}

void lend_device(int device) {
  check_device(device);
  device_of_thread = device;
}

void give_device_back(int device) {
  device_of_thread = has_chosen || device > 0 ? device : kNone;
}

void need_device(const char* what) {
  if (device_of_thread != kNone || device_count() < 2) return;
  throw Error(ErrorKind::Internal, "softdev",
              fmt::format("{} by a thread that has chosen none of {} devices", what,
                          device_count()));
}

Stream& new_stream(int device) {
  check_device(device);
  const std::lock_guard lock(state_mutex());
  auto& of_device = streams().of_device[static_cast<size_t>(device)];
  // The ids are LibTorch's ids, and the first id is that of the default stream.
  const auto id = static_cast<int64_t>(of_device.size());
  const bool shares = id > 0 && setting("SOFTDEV_ONE_QUEUE", 0) != 0;
  Queue& queue = shares ? of_device.front()->queue
                        : *new Queue(streams().queues++,
                                     fmt::format("stream {} of device {}", id, device));
  auto* made = new Stream(streams().all.size(), device, id, queue);
  streams().all.push_back(made);
  of_device.push_back(made);
  return *made;
}

Stream& stream_of(int device, int64_t id) {
  check_device(device);
  const std::lock_guard lock(state_mutex());
  auto& of_device = streams().of_device[static_cast<size_t>(device)];
  if (of_device.empty()) new_stream(device);
  if (id < 0 || id >= static_cast<int64_t>(of_device.size())) {
    throw Error(ErrorKind::Internal, "softdev",
                fmt::format("device {} has no stream {}", device, id));
  }
  return *of_device[static_cast<size_t>(id)];
}

std::vector<Stream*> streams_of_device(int device) {
  stream_of(device, 0);
  const std::lock_guard lock(state_mutex());
  return streams().of_device[static_cast<size_t>(device)];
}

Stream& stream_at(size_t index) {
  const std::lock_guard lock(state_mutex());
  return *streams().all.at(index);
}

Stream& current_stream(int device) {
  check_device(device);
  Stream*& stream = stream_of_thread[static_cast<size_t>(device)];
  if (stream == nullptr) stream = &stream_of(device, 0);
  return *stream;
}

Stream& set_current_stream(Stream& stream) {
  Stream& before = current_stream(stream.device);
  stream_of_thread[static_cast<size_t>(stream.device)] = &stream;
  return before;
}

const Queue* working_queue() { return queue_of_worker; }

std::atomic<bool>& stands_still() {
  static std::atomic<bool> still = false;
  return still;
}

const Clock& host_clock() { return streams().host; }

void set_after_host_saw(void (*call)()) { streams().after_host_saw = call; }

void host_saw(const Clock& seen) {
  const std::lock_guard lock(state_mutex());
  streams().host.join(seen);
  if (streams().after_host_saw != nullptr) streams().after_host_saw();
}

std::string Stream::name() const {
  return fmt::format("stream {} of device {}", id, device);
}

void Queue::make_room() {
  const auto most = static_cast<uint64_t>(setting("SOFTDEV_QUEUE", 0));
  const uint64_t last = last_put();
  if (most > 0 && last >= most) wait(last + 1 - most);
}

void Queue::come_to_kernel() {
  if (wait(last_put(), /*runs_ahead=*/true)) return;
  make_room();
  put({}, [] {});
}

void Queue::put(std::vector<Shown> shown, std::function<void()> run) {
  const std::lock_guard lock(mutex_);
  ++put_;
  for (Shown& part : shown) part.position = put_;
  items_.push_back({std::move(shown), std::move(run)});
  show();
  if (!has_thread_) {
    has_thread_ = true;
    std::thread([this] { work(); }).detach();
  }
  changed_.notify_all();
}

void Queue::work() {
  queue_of_worker = this;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !items_.empty() && failure_.empty(); });
    const std::function<void()> run = items_.front().run;
    lock.unlock();
    std::string failure;
    try {
      run();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    lock.lock();
    if (failure.empty()) {
      ++done_;
      items_.pop_front();
      show();
    } else if (failure_.empty()) {
      failure_ = failure;
    }
    changed_.notify_all();
  }
}

void Queue::show() {
  if (index >= Board::kQueues) return;
  Board::Queue& queue = own_board().queues[index];
  ++queue.writes;
  queue.count = 0;
  queue.more = 0;
  for (const Item& item : items_) {
    for (const Shown& part : item.shown) {
      if (queue.count == static_cast<int32_t>(Board::kShown)) {
        queue.more = 1;
        break;
      }
      queue.shown[static_cast<size_t>(queue.count++)] = part;
    }
    if (queue.more > 0) break;
  }
  ++queue.writes;
}

uint64_t Queue::last_put() {
  const std::lock_guard lock(mutex_);
  return put_;
}

bool Queue::done(uint64_t position) {
  const std::lock_guard lock(mutex_);
  return done_ >= position;
}

std::string Queue::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool Queue::wait(uint64_t position, bool runs_ahead) {
  std::unique_lock lock(mutex_);
  if (done_ >= position) return true;
  std::atomic<int32_t>& shown = own_board().threads[static_cast<size_t>(board_thread())];
  shown = static_cast<int32_t>(index);
  const auto limit = std::chrono::seconds(setting("SOFTDEV_LIMIT", 300));
  const auto end = std::chrono::steady_clock::now() + limit;
  const auto over = [&] { return done_ >= position || !failure_.empty(); };
  while (!over()) {
    if (runs_ahead && stands_still()) break;
    if (std::chrono::steady_clock::now() > end) break;
    changed_.wait_for(lock, kLook, over);
  }
  shown = -1;
  if (done_ >= position) return true;
  if (failure_.empty() && runs_ahead && stands_still()) return false;
  const std::string why =
      failure_.empty()
          ? fmt::format("{} did not get there within {} s", name, limit.count())
          : failure_;
  throw Error(ErrorKind::Temporary, "softdev", why);
}

void record(Event& event, Stream& stream) {
  const std::lock_guard lock(state_mutex());
  stream.seen.join(host_clock());
  event.stream = &stream;
  event.position = stream.queue.last_put();
  event.launched = stream.launched;
  event.thread = std::this_thread::get_id();
  event.launched_by_default = stream_of(stream.device, 0).launched;
  event.seen = stream.seen;
  event.asked = false;
}

void take_time(Event& event, Stream& stream) {
  using Time = std::chrono::steady_clock;
  event.time = std::make_shared<std::atomic<Time::time_point>>(Time::now());
  if (stream.done(stream.queue.last_put())) return;
  stream.queue.make_room();
  stream.queue.put({}, [time = event.time] { *time = Time::now(); });
}

void wait_event(Stream& stream, const Event& event) {
  stream.queue.make_room();
  const std::lock_guard lock(state_mutex());
  if (event.stream == nullptr) return;
  note_in_timeline(stream.name(), "waits for " + event.stream->name());
  static const bool forgets = setting("SOFTDEV_FORGET_WAITS", 0) != 0;
  const size_t other = event.stream->index;
  const bool brings = stream.seen.of(other) < event.seen.of(other);
  if (!forgets && !(brings && planted("forget_wait"))) stream.seen.join(event.seen);
  Queue& from = event.stream->queue;
  if (&from == &stream.queue || from.done(event.position)) return;
  Shown shown;
  shown.kind = Shown::Kind::Wait;
  shown.peer = static_cast<int32_t>(from.index);
  fmt::format_to_n(shown.text.data(), shown.text.size() - 1, "an event of {}",
                   event.stream->name());
  stream.queue.put({shown}, [&from, position = event.position] { from.wait(position); });
}

bool query(const Event& event) {
  if (event.stream != nullptr) {
    if (!event.stream->done(event.position)) return false;
    host_saw(event.seen);
  }
  return true;
}

uint64_t queued_since(const Event& event) {
  const std::lock_guard lock(state_mutex());
  if (event.stream == nullptr) return 0;
  return stream_of(event.stream->device, 0).launched - event.launched_by_default;
}

void synchronize(const Event& event) {
  if (event.stream == nullptr) return;
  event.stream->queue.wait(event.position);
  host_saw(event.seen);
  count_synchronization("event", queued_since(event));
}

void synchronize(Stream& stream) {
  Event now;
  record(now, stream);
  stream.queue.wait(now.position);
  host_saw(now.seen);
  count_synchronization("stream");
}

void synchronize_device(int device) {
  for (Stream* stream : streams_of_device(device)) {
    Event now;
    record(now, *stream);
    stream->queue.wait(now.position);
    host_saw(now.seen);
  }
  count_synchronization("device");
}

}  // namespace longhaul::softdev
