#pragma once

#include "longhaul/base/file.h"

namespace longhaul::objects {

/// A lock on a file, which the system releases when the process ends. A process that was
/// forked meanwhile has the descriptor, too, so that closing it alone releases nothing.
class FileLock {
 public:
  /// Opens the file, and makes it where it is not there. Takes no lock yet. Throws
  /// TemporaryError where the system refuses.
  explicit FileLock(const fs::path& path);
  ~FileLock();
  FileLock(FileLock&&) noexcept = default;

  /// Takes the lock (LOCK_EX or LOCK_SH of sys/file.h), or changes its kind. Returns
  /// false where another FileLock has it. Throws InputError where the file system has no
  /// such locks. Where the file was removed, it is made anew, and that one is locked.
  bool take(int kind);
  /// Removes the file. The caller has the lock (LOCK_EX), which guards nothing more.
  void remove();
  /// Gives the lock back.
  void release();
  /// Notes in the file's time that what it locks is used now.
  void touch();

 private:
  /// Returns whether the file that is open has its name still.
  bool is_there() const;

  fs::path path_;
  Descriptor fd_;
};

}  // namespace longhaul::objects
