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

/// Guards clocks, memory and what is known of its uses.
std::recursive_mutex& state_mutex();

/// How far somebody has seen each stream: the number of its last operation, by the
/// stream's index.
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

/// What was in a stream when it was recorded.
struct Event {
  Stream* stream = nullptr;
  uint64_t position = 0;
  Clock seen;
  bool asked = false;  ///< and was done: a host that polls has waited for it
  /// How often a host has asked while it was not done, with requests_of_thread() at
  /// `since`.
  int asked_in_vain = 0;
  uint64_t since = 0;
  /// When the stream had got there, where it was to be measured.
  std::shared_ptr<std::atomic<std::chrono::steady_clock::time_point>> time;
};

/// Operations in order. Kernels run at once on the calling thread; what cannot (it waits
/// for other ranks) is queued for a thread of the stream's own, which kernels behind it
/// then wait for. Streams live to the end of the process.
class Stream {
 public:
  Stream(size_t stream_index, int device_index, int64_t torch_id)
      : index(stream_index), device(device_index), id(torch_id) {}

  const size_t index;  ///< among all streams of the process
  const int device;
  const int64_t id;  ///< among those of the device

  std::string name() const;

  // Under state_mutex().
  Clock seen;
  uint64_t launched = 0;

  /// Queues `run`, which throws where it fails; then nothing behind it is carried out.
  void put(std::vector<Shown> shown, std::function<void()> run);
  /// The position of what was queued last.
  uint64_t last_put();
  bool done(uint64_t position);
  /// Blocks the calling thread until everything up to `position` is carried out; throws
  /// what made the stream fail, or that SOFTDEV_LIMIT has passed.
  void wait(uint64_t position);
  /// All that was queued.
  void drain() { wait(last_put()); }
  /// Why it came to its end; empty while it goes on.
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
  std::deque<Item> items_;  ///< the first is under way
  uint64_t put_ = 0;
  uint64_t done_ = 0;
  bool has_thread_ = false;
  std::string failure_;
};

/// The devices of SOFTDEV_COUNT.
int device_count();
/// Of the calling thread.
int current_device();
void set_current_device(int device);
Stream& current_stream(int device);
/// Returns the one before.
Stream& set_current_stream(Stream& stream);

/// The stream whose queue the calling thread works off; null for other threads.
const Stream* working_stream();

Stream& new_stream(int device);
/// By the id that LibTorch knows; 0 is the default stream. Throws for an unknown one.
Stream& stream_of(int device, int64_t id);
std::vector<Stream*> streams_of_device(int device);
Stream& stream_at(size_t index);

/// What the host has waited for: all that it starts afterwards is behind it.
const Clock& host_clock();
/// The host has waited for `seen`.
void host_saw(const Clock& seen);
/// Called by host_saw, under state_mutex().
void set_after_host_saw(void (*call)());

void record(Event& event, Stream& stream);
/// The event, which is recorded next, is to know when the stream gets there.
void take_time(Event& event, Stream& stream);
/// What comes to `stream` next is behind the event.
void wait_event(Stream& stream, const Event& event);
bool query(const Event& event);
// The host waits, which is counted.
void synchronize(const Event& event);
void synchronize(Stream& stream);
void synchronize_device(int device);

}  // namespace longhaul::softdev
