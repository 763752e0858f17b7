#pragma once

#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "longhaul/base/file.h"

namespace longhaul::apps {

/// Throws InputError of this area if anything has the path's name, even a link to
/// nothing: what a person has is never overwritten.
void refuse_existing(const fs::path& path, const std::string& area);

/// Writes a file that does not exist yet, and makes the directories above it. The whole
/// text appears at once. Throws InputError if another process has made something of this
/// name before the text appears.
void write_new(const fs::path& path, std::string_view text, const std::string& area);

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
