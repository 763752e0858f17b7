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
  uint64_t launched = 0;  ///< operations that the default stream had been given
  Clock seen;
  bool asked = false;  ///< a host has asked and was told that it is done: it has waited
  /// How often a host has asked while the event was not done, with requests_of_thread()
  /// at `since`.
  int asked_in_vain = 0;
  uint64_t since = 0;
  /// When the stream came to the event, where the time was to be measured.
  std::shared_ptr<std::atomic<std::chrono::steady_clock::time_point>> time;
};

/// Operations in order. Kernels run at once on the calling thread. Operations that wait
/// for other ranks are queued for a thread of the stream, and kernels behind them wait
/// for that thread. Streams live to the end of the process.
class Stream {
 public:
  Stream(size_t stream_index, int device_index, int64_t torch_id)
      : index(stream_index), device(device_index), id(torch_id) {}

  const size_t index;  ///< number among all streams of the process
  const int device;
  const int64_t id;  ///< number among the streams of the device

  std::string name() const;

  // These members are used under state_mutex().
  Clock seen;
  uint64_t launched = 0;

  /// Queues `run`, which throws where it fails; then nothing behind it runs.
  void put(std::vector<Shown> shown, std::function<void()> run);
  /// Returns the position of the entry that was queued last.
  uint64_t last_put();
  bool done(uint64_t position);
  /// Blocks the calling thread until everything up to `position` has run. Throws the text
  /// that made the stream fail, or where SOFTDEV_LIMIT has passed.
  void wait(uint64_t position);
  /// Waits for everything that was queued.
  void drain() { wait(last_put()); }
  /// Returns why the stream has failed; empty while it goes on.
  std::string failure();

 private:
  struct Item {
    std::vector<Shown> shown;
    std::function<void()> run;
  };
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

/// Returns the number of devices, which SOFTDEV_COUNT sets (1 if it is not set).
int device_count();
/// Returns the current stream of the calling thread.
int current_device();
void set_current_device(int device);
Stream& current_stream(int device);
/// Sets the current stream of the calling thread and returns the one that it replaces.
Stream& set_current_stream(Stream& stream);

/// Returns the stream whose queue the calling thread runs; null for other threads.
const Stream* working_stream();

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
