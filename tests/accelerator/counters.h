#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace longhaul::softdev {

/// Counts of what the process has asked of its devices.
struct Counters {
  std::atomic<int64_t> synchronizations = 0;
  std::atomic<int64_t> launches = 0;
  std::atomic<int64_t> collectives = 0;
  std::atomic<int64_t> communicators = 0;
  std::atomic<int64_t> kernel_bytes = 0;
  std::atomic<int64_t> host_to_device_bytes = 0;
  std::atomic<int64_t> device_to_host_bytes = 0;
  std::atomic<int64_t> device_allocations = 0;
  std::atomic<int64_t> device_bytes = 0;  ///< taken from the device, in use or cached
  std::atomic<int64_t> used_bytes = 0;
  std::atomic<int64_t> peak_used_bytes = 0;
  std::atomic<int64_t> pinned_allocations = 0;
  std::atomic<int64_t> races = 0;
  std::atomic<int64_t> asked_bytes = 0;  ///< as used_bytes, with blocks not rounded up
  std::atomic<int64_t> peak_asked_bytes = 0;
};
Counters& counters();

/// Counts of one kind of operation, under state_mutex().
struct Tally {
  int64_t launches = 0;
  int64_t bytes = 0;
};
/// Returns the counts of operations with this name. The number of a collective does not
/// count as part of the name.
Tally& tally(const std::string& name);

/// Counts a wait of the host for the device in `what`, and writes a line to
/// SOFTDEV_TRACE. The default stream was given `queued` operations that may run
/// meanwhile.
void count_synchronization(const std::string& what, uint64_t queued = 0);

/// Writes to SOFTDEV_TIMELINE what was put into a stream.
void note_in_timeline(const std::string& stream, const std::string& what);

/// Returns the number of requests of the calling thread to its devices. Questions whether
/// an operation between ranks is over do not count: a host that asks only this question
/// again and again waits for the operation.
uint64_t& requests_of_thread();

/// Returns the label of the calling thread, or "".
const std::string& thread_label();

/// Returns the value of an environment variable, or `otherwise`.
int64_t setting(const char* name, int64_t otherwise);

/// Prints `text` to stderr as "softdev: ...". Throws it where races are errors and
/// `may_throw`.
void report(const std::string& text, bool may_throw = true);

}  // namespace longhaul::softdev
