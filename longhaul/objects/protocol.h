#pragma once

#include <cstdint>

#include "longhaul/base/json.h"

namespace longhaul::objects {

// The messages between the program and its process for objects, longhaul-objects, over a
// socket. A request is a Head and a JSON text of `text_bytes`:
//   {"what": "look" | "list" | "read" | "came_right" | "fetch" | "put" | "put_text" |
//    "remove" | "remove_all", ...}
// An answer is a Head with the request's number, a text as reply_of() makes it, whose
// answer is JSON, and `data_bytes` bytes of the object. Answers come in any order. A
// "read" that names a "place" gets its bytes there (objects/shared_places.h).

/// Returns the seconds for which a request is tried again before it fails: 120, or
/// LONGHAUL_OBJECTS_PATIENCE of the environment. Throws InputError if that is no number
/// of seconds.
double patience_seconds();
/// The most requests of one ObjectStore that run side by side.
inline constexpr int kRequestsInFlight = 16;

/// Counts of the requests of one ObjectStore so far.
struct ObjectCounts {
  int64_t requests = 0;  ///< requests to the store, without those tried again
  int64_t retries = 0;   ///< requests that were tried again
  uint64_t read = 0;     ///< bytes that came
  uint64_t written = 0;  ///< bytes that went

  void operator+=(const ObjectCounts& more) {
    requests += more.requests;
    retries += more.retries;
    read += more.read;
    written += more.written;
  }
};

/// Begins each message.
struct Head {
  uint64_t number = 0;
  uint64_t text_bytes = 0;
  uint64_t data_bytes = 0;
  ObjectCounts counts = {};  ///< set in answers
};

/// Most bytes of a request's or an answer's text. A listing of ten million objects fits.
inline constexpr uint64_t kMostTextBytes = uint64_t{2} << 30;
/// Most bytes of an object that one answer has.
inline constexpr uint64_t kMostDataBytes = uint64_t{64} << 20;
/// The descriptors of the socket and of the shared memory in longhaul-objects.
inline constexpr int kServiceSocket = 3;
inline constexpr int kServiceMemory = 4;
/// The argument that has longhaul-objects run at a low priority.
inline constexpr const char* kLowPriority = "--low-priority";

}  // namespace longhaul::objects
