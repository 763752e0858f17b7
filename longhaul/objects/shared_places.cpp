#include "longhaul/objects/shared_places.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "longhaul/base/refused.h"

namespace longhaul::objects {
namespace {

off_t offset_of(uint64_t number) { return static_cast<off_t>(number * kPlaceBytes); }

}  // namespace

SharedPlaces::SharedPlaces()
    : descriptor_(::memfd_create("longhaul-objects", MFD_CLOEXEC)) {
  if (!descriptor_.is_open()) throw refused("objects", "memory to share", errno);
}

SharedPlaces::SharedPlaces(int descriptor) : descriptor_(descriptor) {}

SharedPlaces::~SharedPlaces() {
  for (const auto& [number, place] : mapped_) ::munmap(place, kPlaceBytes);
}

std::byte* SharedPlaces::at(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = mapped_.find(number);
  if (found != mapped_.end()) return found->second;
  void* place = ::mmap(nullptr, kPlaceBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                       descriptor(), offset_of(number));
  if (place == MAP_FAILED) throw refused("objects", "memory to share", errno);
  // Forked children, some of which read hostile input, do not get these bytes.
  ::madvise(place, kPlaceBytes, MADV_DONTFORK);
  return mapped_[number] = static_cast<std::byte*>(place);
}

uint64_t SharedPlaces::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    if (::ftruncate(descriptor(), offset_of(count_ + 1)) != 0) {
      throw refused("objects", "memory to share", errno);
    }
    return count_++;
  }
  return free_.extract(free_.begin()).value();
}

void SharedPlaces::give_back(uint64_t number) {
  const std::lock_guard lock(mutex_);
  free_.insert(number);
  if (free_.size() < count_) return;
  for (const auto& [of, place] : mapped_) ::madvise(place, kPlaceBytes, MADV_REMOVE);
}

}  // namespace longhaul::objects
