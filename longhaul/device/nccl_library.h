#pragma once

#include <string>
#include <vector>

namespace longhaul::device {

/// The library of NCCL: the copy that LibTorch has loaded, if there is one. A second copy
/// would be a second NCCL in the process. Functions that only newer versions have are
/// asked for by find().
class NcclLibrary {
 public:
  /// Loads `file`. Throws ConfigError if it cannot be loaded, or if it is no NCCL 2 of at
  /// least 2.14, the first whose communicators do not block.
  explicit NcclLibrary(const char* file = "libnccl.so.2");

  /// The address of a function of the library, which converts to a pointer of any type of
  /// function.
  struct Symbol {
    void* address;
    template <typename Function>
    operator Function*() const {
      return reinterpret_cast<Function*>(address);
    }
  };
  /// Returns a function that every supported version has. Throws ConfigError without it.
  Symbol get(const char* name) const;
  /// Returns a function that newer versions have; null in an older one.
  Symbol find(const char* name) const;

  /// Returns NCCL's number of its version: 22605 for 2.26.5.
  int version() const { return version_; }
  /// Returns what the program does without because this NCCL is too old, in sentences.
  std::vector<std::string> lacks() const;

 private:
  const char* file_;
  void* handle_ = nullptr;
  int version_ = 0;
};

/// Returns "2.26.5" for 22605.
std::string nccl_version_text(int version);

}  // namespace longhaul::device
