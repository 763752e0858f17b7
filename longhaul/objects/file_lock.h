#pragma once

#include "longhaul/base/file.h"

namespace longhaul::objects {

/// A lock on a file, which the system releases when the process ends. A child process
/// that is forked in between has the descriptor too, so the lock is released by
/// release(), not by closing the file.
class FileLock {
 public:
  /// Opens the file, and makes it where it is not there. Takes no lock yet. Throws
  /// TemporaryError where the system refuses.
  explicit FileLock(const fs::path& path);
  ~FileLock();
  FileLock(FileLock&&) noexcept = default;

  /// Takes the lock (LOCK_EX or LOCK_SH of sys/file.h), or changes its kind. Returns
  /// false where another FileLock has it. Throws InputError where the file system has no
  /// such locks. Where the file was removed meanwhile, makes it anew and locks the new
  /// file.
  bool take(int kind);
  /// Removes the file. The caller must hold the lock (LOCK_EX), and what the lock guarded
  /// must be gone.
  void remove();
  /// Gives the lock back.
  void release();
  /// Sets the file's time to now, which says when what the lock guards was last used.
  void touch();

 private:
  /// Returns whether `path_` still names the file that is open.
  bool is_there() const;

  fs::path path_;
  Descriptor fd_;
};

}  // namespace longhaul::objects
