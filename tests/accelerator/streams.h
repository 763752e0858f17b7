#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/accelerator/board.h"

namespace longhaul::softdev {

/// Guards clocks, memory and the records of its uses.
std::recursive_mutex& state_mutex();

/// For each stream, by its index, the number of its last operation that the owner of the
/// clock (a stream, an event or the host) comes after.
class Clock {
 public:
  uint64_t of(size_t stream) const { return stream < last_.size() ? last_[stream] : 0; }
  void set(size_t stream, uint64_t number) {
    if (last_.size() <= stream) last_.resize(stream + 1);
    last_[stream] = number;
  }
  void join(const Clock& other) {
    if (last_.size() < other.last_.size()) last_.resize(other.last_.size());
    for (size_t i = 0; i < other.last_.size(); ++i) {
      last_[i] = std::max(last_[i], other.last_[i]);
    }
  }

 private:
  std::vector<uint64_t> last_;
};

class Stream;

/// The operations that were in a stream when the event was recorded.
struct Event {
  Stream* stream = nullptr;
  uint64_t position = 0;
  uint64_t launched = 0;   ///< of the stream
  std::thread::id thread;  ///< which recorded the event
  uint64_t launched_by_default =
      0;  ///< operations that the default stream had been given
  Clock seen;
  bool asked = false;  ///< a host has asked and was told that it is done: it has waited
  /// How often a host has asked while the event was not done, with requests_of_thread()
  /// at `since`.
  int asked_in_vain = 0;
  uint64_t since = 0;
  /// When the stream came to the event, where the time was to be measured.
  std::shared_ptr<std::atomic<std::chrono::steady_clock::time_point>> time;
};

/// Entries in order, which a thread of the queue runs. Each stream has a queue. With
/// SOFTDEV_ONE_QUEUE all streams of a device share one, as streams do for which a GPU has
/// no hardware queue left: what one stream waits for then holds up the others.
class Queue {
 public:
  Queue(size_t queue_index, std::string queue_name)
      : index(queue_index), name(std::move(queue_name)) {}

  const size_t index;  ///< number among all queues of the process, and on the board
  const std::string name;

  /// Blocks the calling thread while SOFTDEV_QUEUE entries have not run. Must be called
  /// before put(), without state_mutex().
  void make_room();
  /// Queues `run`, which throws where it fails; then nothing behind it runs.
  void put(std::vector<Shown> shown, std::function<void()> run);
  /// Returns the position of the entry that was queued last.
  uint64_t last_put();
  bool done(uint64_t position);
  /// Blocks the calling thread until everything up to `position` has run. Throws the text
  /// that made the queue fail, or where SOFTDEV_LIMIT has passed.
  void wait(uint64_t position) { wait(position, /*runs_ahead=*/false); }
  /// Waits for everything that was queued.
  void drain() { wait(last_put()); }
  /// Is called before a kernel, which runs on the calling thread: waits for everything
  /// that was queued. Where the ranks stand still (stands_still()), the kernel is an
  /// entry of the queue instead, since a host runs ahead there as beside a GPU. It runs
  /// at once on whatever its operands hold, and nobody will see its result.
  void come_to_kernel();
  /// Returns why the queue has failed; empty while it goes on.
  std::string failure();

 private:
  struct Item {
    std::vector<Shown> shown;
    std::function<void()> run;
  };
  /// Returns false where it gave up because the ranks stand still.
  bool wait(uint64_t position, bool runs_ahead);
  void work();
  void show();  ///< under mutex_

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;  ///< the first item is running
  uint64_t put_ = 0;
  uint64_t done_ = 0;
  bool has_thread_ = false;
  std::string failure_;
};

/// Operations in order. Kernels run at once on the calling thread. Operations that wait
/// for other ranks are entries of the stream's queue, and kernels behind them wait for
/// that queue. Streams live to the end of the process.
class Stream {
 public:
  Stream(size_t stream_index, int device_index, int64_t torch_id, Queue& of_stream)
      : index(stream_index), device(device_index), id(torch_id), queue(of_stream) {}

  const size_t index;  ///< number among all streams of the process
  const int device;
  const int64_t id;  ///< number among the streams of the device
  Queue& queue;

  std::string name() const;

  // These members are used under state_mutex().
  Clock seen;
  uint64_t launched = 0;

  bool done(uint64_t position) const { return queue.done(position); }
};

/// Returns whether a rank stands still by a planted fault and some rank of this process
/// waits for it, be it through others.
std::atomic<bool>& stands_still();

/// Returns the number of devices, which SOFTDEV_COUNT sets (1 if it is not set).
int device_count();
/// Returns the current device of the calling thread, 0 if it has chosen none.
int current_device();
/// Chooses the thread's device for all that follows.
void set_current_device(int device);
/// Chooses the thread's device until give_device_back().
void lend_device(int device);
/// Makes `device` current again. A thread that has chosen no device has none again.
void give_device_back(int device);
/// Throws where there are several devices and the calling thread has chosen none, with
/// `what` the thread does. On a GPU this would take half a gigabyte of device 0 for every
/// process of the machine.
void need_device(const char* what);
Stream& current_stream(int device);
/// Sets the current stream of the calling thread and returns the one that it replaces.
Stream& set_current_stream(Stream& stream);

/// Returns the queue that the calling thread runs; null for other threads.
const Queue* working_queue();

Stream& new_stream(int device);
/// Returns the stream with an id of LibTorch; 0 is the default stream. Throws for an
/// unknown id.
Stream& stream_of(int device, int64_t id);
std::vector<Stream*> streams_of_device(int device);
Stream& stream_at(size_t index);

/// Returns what the host has waited for. Everything that the host starts afterwards comes
/// behind it.
const Clock& host_clock();
/// Notes that the host has waited for `seen`.
void host_saw(const Clock& seen);
/// Is called by host_saw, under state_mutex().
void set_after_host_saw(void (*call)());

void record(Event& event, Stream& stream);
/// Makes the event, which is recorded next, note the time at which the stream comes to
/// it.
void take_time(Event& event, Stream& stream);
/// Puts everything that comes to `stream` next behind the event.
void wait_event(Stream& stream, const Event& event);
bool query(const Event& event);
/// Returns the number of operations that the default stream of the event's device was
/// given since the event was recorded.
uint64_t queued_since(const Event& event);
// Waits of the host, which are counted.
void synchronize(const Event& event);
void synchronize(Stream& stream);
void synchronize_device(int device);

}  // namespace longhaul::softdev
