#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "longhaul/objects/md5.h"

namespace longhaul::objects {

/// Compares the bytes of an object, which come in their order, with its ETag. The ETag of
/// an object that was sent at once is the MD5 of its bytes. An object that was sent in
/// parts has an ETag that is made of the parts' MD5s. Neither holds if the store encrypts
/// with keys of the user.
class EtagProof {
 public:
  /// `version` is the object's ETag.
  EtagProof(const std::string& version, uint64_t size);

  /// Returns whether the ETag says anything that the bytes can be compared with: it looks
  /// like an MD5, or like that of parts of a usual size.
  bool compares() const { return !sums_.empty(); }
  /// Returns whether the ETag names no parts: the object was sent at once, and no size of
  /// parts has to be guessed.
  bool is_plain() const { return parts_ == 0; }

  void update(std::span<const std::byte> bytes);
  /// Must be called after the last bytes. Returns whether the ETag is that of these
  /// bytes, or cannot be compared with them. Afterwards only digest() may be called.
  bool fits();
  /// Returns the ETag that the bytes themselves have, once fits() was called. It is equal
  /// for equal bytes.
  const std::string& digest() const { return digest_; }

 private:
  /// The ETag that an object has if its parts have `part_bytes`, while it is computed.
  struct Sum {
    uint64_t part_bytes = 0;
    uint64_t left = 0;  ///< bytes of the part that are still to come
    Md5 part = {};
    Md5 parts = {};
  };

  std::string wanted_;
  uint64_t parts_ = 0;
  std::vector<Sum> sums_;
  std::string digest_;
};

}  // namespace longhaul::objects
