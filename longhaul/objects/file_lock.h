#pragma once

#include "longhaul/base/file.h"

namespace longhaul::objects {

/// A lock on a file, which the system releases when the process ends. A child process
/// that is forked while the lock is held has the descriptor too, so the lock is released
/// by release(), not by closing the file.
class FileLock {
 public:
  /// Opens the file, and makes it if it is not there. Takes no lock yet. Throws
  /// TemporaryError if the system refuses.
  explicit FileLock(const fs::path& path);
  ~FileLock();
  FileLock(FileLock&&) noexcept = default;

  /// Takes the lock (LOCK_EX or LOCK_SH of sys/file.h), or changes its kind. Returns
  /// false if another FileLock has it. Throws InputError if the file system has no such
  /// locks. If another process has removed the file since it was opened, makes it anew
  /// and locks the new file.
  bool take(int kind);
  /// Removes the file. The caller must hold the lock (LOCK_EX), and must have deleted
  /// what the lock guarded.
  void remove();
  /// Gives the lock back.
  void release();
  /// Sets the file's time to now. The time says when the copy, or whatever else the lock
  /// guards, was last used.
  void touch();

 private:
  /// Returns whether `path_` still names the file that is open.
  bool is_there() const;

  fs::path path_;
  Descriptor fd_;
};

}  // namespace longhaul::objects
