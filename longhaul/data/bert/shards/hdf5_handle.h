#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

namespace longhaul::data {

/// Owns one identifier of libhdf5.
class Hdf5Handle {
 public:
  Hdf5Handle() = default;
  Hdf5Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept
      : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Hdf5Handle() { reset(); }
  Hdf5Handle(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(const Hdf5Handle&) = delete;

  hid_t id() const { return id_; }
  bool valid() const { return id_ >= 0; }
  /// Closes the identifier. Returns false when libhdf5 reports an error, which can be a
  /// failed late write.
  bool reset() {
    const hid_t id = std::exchange(id_, -1);
    return id < 0 || close_(id) >= 0;
  }

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

/// Returns the innermost line of libhdf5 about the last failure, without line breaks.
std::string hdf5_reason();

/// Stops libhdf5 from printing its errors, and from searching and loading plug-ins. One
/// call in a process is enough; more calls do no harm.
void tame_hdf5();

}  // namespace longhaul::data
