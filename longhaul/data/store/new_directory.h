#pragma once

#include "longhaul/data/store/resumable_build.h"

namespace longhaul::data {

/// A directory that is written under a temporary name beside its place and is moved to
/// its place when it is complete. The destructor removes a directory that was not
/// committed.
class NewDirectory {
 public:
  /// `record` is the file that marks a directory of the same kind. Throws InputError when
  /// something stands at the place. With `replace` a directory of the same kind may stand
  /// there and commit() replaces it, but never anything else.
  NewDirectory(const fs::path& out, const std::string& record, bool replace);
  ~NewDirectory();
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;

  const fs::path& path() const { return temporary_; }
  void commit();

 private:
  BuildKind kind_;
  bool replace_;
  fs::path out_;
  fs::path temporary_;
  fs::path aside_;
  bool committed_ = false;
};

}  // namespace longhaul::data
