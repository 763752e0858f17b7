#pragma once

#include <system_error>
#include <utility>

#include "longhaul/base/file.h"

namespace longhaul::apps {

/// A file or directory that is removed, with all in it, when this object goes, unless
/// keep() was called.
class ScratchPath {
 public:
  explicit ScratchPath(fs::path path) : path_(std::move(path)) {}
  ~ScratchPath() {
    std::error_code ignored;
    if (!kept_) fs::remove_all(path_, ignored);
  }
  ScratchPath(const ScratchPath&) = delete;
  ScratchPath& operator=(const ScratchPath&) = delete;
  const fs::path& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  fs::path path_;
  bool kept_ = false;
};

}  // namespace longhaul::apps
