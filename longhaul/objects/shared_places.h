#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include "longhaul/base/file.h"

namespace longhaul::objects {

/// Bytes of one place, a buffer in memory that two processes share.
inline constexpr uint64_t kPlaceBytes = uint64_t{12} << 20;

/// Memory that this process shares with longhaul-objects. It is divided into buffers of
/// kPlaceBytes (places), which have numbers. Any thread may call it.
class SharedPlaces {
 public:
  /// Makes the memory.
  SharedPlaces();
  /// Opens the memory that the process which has started this one has made.
  explicit SharedPlaces(int descriptor);
  ~SharedPlaces();

  int descriptor() const { return descriptor_.get(); }
  /// Returns the buffer of this number. Throws TemporaryError if there is no memory.
  std::byte* at(uint64_t number);

  /// Returns the number of a buffer that nobody uses.
  uint64_t take();
  /// Lets others use a buffer. When all are free the machine gets the memory back.
  void give_back(uint64_t number);

 private:
  Descriptor descriptor_;
  std::mutex mutex_;  ///< guards what follows
  std::map<uint64_t, std::byte*> mapped_;
  std::set<uint64_t> free_;
  uint64_t count_ = 0;  ///< places that were ever taken
};

}  // namespace longhaul::objects
