#include "tests/accelerator/counters.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>

#include "longhaul/base/error.h"
#include "tests/accelerator/softdev.h"
#include "tests/accelerator/streams.h"

namespace longhaul::softdev {
namespace {

thread_local std::string label_of_thread;

std::map<std::string, Tally, std::less<>>& tallies() {
  static auto* const made = new std::map<std::string, Tally, std::less<>>;
  return *made;
}

std::string operations_json() {
  const std::lock_guard lock(state_mutex());
  std::string text;
  for (const auto& [name, each] : tallies()) {
    text += fmt::format("{}\"{}\": [{}, {}]", text.empty() ? "" : ", ", name,
                        each.launches, each.bytes);
  }
  return text;
}

std::string counters_json(const std::string& what, uint64_t queued = 0) {
  const Counters& c = counters();
  return fmt::format(
      "{{\"pid\": {}, \"at\": \"{}\", \"queued\": {}, \"label\": \"{}\", "
      "\"synchronizations\": {}, "
      "\"launches\": {}, \"collectives\": {}, \"communicators\": {}, \"kernel_bytes\": "
      "{}, "
      "\"host_to_device_bytes\": {}, \"device_to_host_bytes\": {}, "
      "\"device_allocations\": {}, \"device_bytes\": {}, \"used_bytes\": {}, "
      "\"peak_used_bytes\": {}, \"peak_asked_bytes\": {}, \"pinned_allocations\": {}, "
      "\"races\": {}, "
      "\"operations\": {{{}}}}}",
      ::getpid(), what, queued, label_of_thread, c.synchronizations.load(),
      c.launches.load(), c.collectives.load(), c.communicators.load(),
      c.kernel_bytes.load(), c.host_to_device_bytes.load(), c.device_to_host_bytes.load(),
      c.device_allocations.load(), c.device_bytes.load(), c.used_bytes.load(),
      c.peak_used_bytes.load(), c.peak_asked_bytes.load(), c.pinned_allocations.load(),
      c.races.load(), operations_json());
}

void append_line(const char* variable, const std::string& what, uint64_t queued = 0) {
  const char* path = std::getenv(variable);
  if (path == nullptr || *path == '\0') return;
  // The line is written at once, so that lines of several processes do not mix.
  const std::string line = counters_json(what, queued) + "\n";
  std::ofstream(path, std::ios::app) << line << std::flush;
}

}  // namespace

Counters& counters() {
  static auto* const all = [] {
    std::atexit([] { append_line("SOFTDEV_REPORT", "exit"); });
    return new Counters;
  }();
  return *all;
}

Tally& tally(const std::string& name) {
  const size_t end = std::min(name.find(" rank "), name.find(" number "));
  return tallies()[name.substr(0, end)];
}

void count_synchronization(const std::string& what, uint64_t queued) {
  ++counters().synchronizations;
  append_line("SOFTDEV_TRACE", what, queued);
}

void note_in_timeline(const std::string& stream, const std::string& what) {
  const char* path = std::getenv("SOFTDEV_TIMELINE");
  if (path == nullptr || *path == '\0') return;
  const std::string line = fmt::format("{}\t{}\t{}\n", ::getpid(), stream, what);
  std::ofstream(path, std::ios::app) << line << std::flush;
}

uint64_t& requests_of_thread() {
  thread_local uint64_t count = 0;
  return count;
}

const std::string& thread_label() { return label_of_thread; }

int64_t setting(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : std::atoll(value);
}

void report(const std::string& text, bool may_throw) {
  fmt::print(stderr, "softdev: {}\n", text);
  if (may_throw && setting("SOFTDEV_STRICT", 1) != 0) {
    throw Error(ErrorKind::Internal, "softdev", text);
  }
}

}  // namespace longhaul::softdev

extern "C" {

const char* softdev_counters() {
  thread_local std::string text;
  text = longhaul::softdev::counters_json("call");
  return text.c_str();
}

void softdev_mark(const char* label) {
  longhaul::softdev::append_line("SOFTDEV_REPORT", label);
}

void softdev_label(const char* label) { longhaul::softdev::label_of_thread = label; }

}  // extern "C"
