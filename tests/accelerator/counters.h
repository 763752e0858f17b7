#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace longhaul::softdev {

/// What the process has asked of its devices.
struct Counters {
  std::atomic<int64_t> synchronizations = 0;
  std::atomic<int64_t> launches = 0;
  std::atomic<int64_t> collectives = 0;
  std::atomic<int64_t> kernel_bytes = 0;
  std::atomic<int64_t> host_to_device_bytes = 0;
  std::atomic<int64_t> device_to_host_bytes = 0;
  std::atomic<int64_t> device_allocations = 0;
  std::atomic<int64_t> device_bytes = 0;  ///< taken from the device, cached or not
  std::atomic<int64_t> used_bytes = 0;
  std::atomic<int64_t> peak_used_bytes = 0;
  std::atomic<int64_t> pinned_allocations = 0;
  std::atomic<int64_t> races = 0;
};
Counters& counters();

/// What one kind of operation has done, under state_mutex().
struct Tally {
  int64_t launches = 0;
  int64_t bytes = 0;
};
/// Of the operations whose name begins so: a collective's number is not looked at.
Tally& tally(const std::string& name);

/// The host waited for the device in `what`: counted, and a line in SOFTDEV_TRACE.
void count_synchronization(const std::string& what);

/// What the calling thread has asked of its devices, but for whether an operation between
/// ranks is over: a host that asks that time and again, and does nothing else, waits for
/// it.
uint64_t& requests_of_thread();

/// The label of the calling thread, "" without one.
const std::string& thread_label();

/// What an environment variable says, or `otherwise`.
int64_t setting(const char* name, int64_t otherwise);

/// Prints `text` to stderr as "softdev: ..." and, where races are errors and `may_throw`,
/// throws it.
void report(const std::string& text, bool may_throw = true);

}  // namespace longhaul::softdev
