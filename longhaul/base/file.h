#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"

namespace longhaul {

namespace fs = std::filesystem;

/// Returns what a failure of std::filesystem means to a person: path, the system's words
/// and what to do. The error is Temporary for what may pass (see File), else Input.
Error to_error(const fs::filesystem_error& problem);

/// Returns whether there is something, a directory or a regular file at the path. What
/// cannot be looked at is taken as absent.
bool is_seen(const fs::path& path) noexcept;
bool is_seen_directory(const fs::path& path) noexcept;
bool is_seen_file(const fs::path& path) noexcept;

/// Returns what lies in a directory, in no order; nothing if it cannot be opened. Throws
/// filesystem_error if the listing fails after its beginning.
std::vector<fs::path> paths_in(const fs::path& dir);

/// Removes a file or an empty directory; try_remove_all() also removes all that lies
/// below the path. A failure is ignored.
void try_remove(const fs::path& path) noexcept;
void try_remove_all(const fs::path& path);

/// A file or directory that is removed, with all in it, when this object goes, unless
/// keep() was called.
class ScratchPath {
 public:
  explicit ScratchPath(fs::path path) : path_(std::move(path)) {}
  ~ScratchPath() {
    if (!kept_) try_remove_all(path_);
  }
  ScratchPath(const ScratchPath&) = delete;
  ScratchPath& operator=(const ScratchPath&) = delete;
  const fs::path& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  fs::path path_;
  bool kept_ = false;
};

/// A file descriptor that is closed when its owner is destroyed.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

/// Both ends of a pipe, closed in programs that this process starts.
struct Pipe {
  Descriptor read;
  Descriptor write;
};
/// Throws TemporaryError of this area if no pipe can be had.
Pipe make_pipe(const std::string& area);

/// An open file. Every failure throws InputError with path, call and errno
/// text, and TemporaryError for what may pass: no space, a quota, I/O, a network or a
/// server that is away.
class File {
 public:
  File() = default;
  /// Opens a regular file, or a directory to sync, for reading; InputError for pipes,
  /// sockets and devices.
  static File open_read(const fs::path& path);
  /// Creates or truncates for writing (mode 0666, less the umask).
  static File create(const fs::path& path);
  /// Opens for appending, creating it if absent.
  static File open_append(const fs::path& path);

  const fs::path& path() const { return path_; }
  int fd() const { return fd_.get(); }
  bool is_open() const { return fd_.is_open(); }
  uint64_t size() const;

  /// Writes all bytes or throws; resumes short writes and EINTR.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Reads exactly bytes.size() at `offset`; an early end of file throws.
  void read_at(uint64_t offset, std::span<std::byte> bytes) const;
  void sync();
  /// Asks the kernel to begin writing a range to the device, without waiting, so that a
  /// later sync has less to wait for. It does nothing if that is not supported.
  void start_writeback(uint64_t offset, uint64_t bytes);
  /// Asks the kernel to drop what is cached of a file whose content has been synced, so
  /// that the next read comes from the device.
  void drop_cache() const;
  /// Closes the file and reports the error that a late write may surface here.
  void close();

 private:
  File(int fd, fs::path path) : fd_(fd), path_(std::move(path)) {}
  Descriptor fd_;
  fs::path path_;
};

/// Gives memory of mmap() back to the system.
struct Unmap {
  size_t bytes = 0;
  void operator()(std::byte* address) const;
};
/// Mapped memory, with its size.
class Mapping : public std::unique_ptr<std::byte, Unmap> {
 public:
  Mapping() = default;
  /// Calls mmap(). If the system refuses, the mapping is null and errno says why.
  Mapping(size_t bytes, int protection, int flags, int fd = -1);
  std::span<std::byte> bytes() const { return {get(), *this ? get_deleter().bytes : 0}; }
};

/// What to do about a file system that lacks what a run needs; the end of a message.
inline constexpr std::string_view kOtherFileSystem =
    "choose a place on a local disk or a shared file system (Lustre, NFS, GPFS), not on "
    "a mounted bucket";

/// A whole file mapped read-only. Empty files map to an empty span. If the file system
/// has no mappings, a file of at most 64 MiB is read into memory and a larger one is
/// refused.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const fs::path& path);

  std::span<const std::byte> bytes() const { return data_.bytes(); }
  std::string_view text() const;
  const fs::path& path() const { return path_; }

 private:
  Mapping data_;
  fs::path path_;
};

/// Returns the whole file as a string. Throws InputError when the file is larger than
/// `limit`.
std::string read_text(const fs::path& path, uint64_t limit = uint64_t{1} << 30);

/// Returns the first line of a small file; nothing if the file cannot be read.
std::string first_line(const fs::path& file);

/// Returns the number behind a word at the start of a line of a small file, such as
/// "MemTotal:" of /proc/meminfo; without a word, the first number with which a line
/// begins. Returns nothing if there is no such line, or if the file cannot be read. A
/// number of kB is returned in bytes.
std::optional<int64_t> number_behind(const fs::path& file, std::string_view word = {});

/// Writes a text to a descriptor, whatever signals interrupt. Returns false if not all of
/// it can be written. Calls only what is safe after a fork.
bool write_descriptor(int fd, std::string_view text);

/// Writes a temporary neighbour, fsyncs it, renames it over `path`, fsyncs the
/// directory: a reader sees the old or the new content, never a part.
void write_text_atomic(const fs::path& path, std::string_view text);

/// Creates or truncates a file, writes it, fsyncs it. Its directory is not synced.
void write_text_durable(const fs::path& path, std::string_view text);

/// Makes a directory and its absent parents so that they survive a power cut. If the
/// directory is there already, its own name is made durable, since whoever made it may
/// have been killed.
void make_directories_durable(const fs::path& dir);

/// Gives `from` the name `to` in one step, so that of several callers one alone succeeds.
/// If something has that name it returns false and `from` stays. Returns nothing if the
/// file system has neither hard links nor RENAME_NOREPLACE, and `from` stays.
std::optional<bool> rename_at_once(const fs::path& from, const fs::path& to);

/// Gives `from` the name `to`. If something has that name it returns false and `from`
/// stays. If the file system lacks what rename_at_once() needs, it looks whether `to`
/// exists and then renames.
bool rename_to_new(const fs::path& from, const fs::path& to);

/// Syncs a directory, so that renames in it survive a power cut.
void sync_directory(const fs::path& dir);

/// Throws InputError when a name from an outside file (an index, a manifest) is
/// absolute or has a component "..", else returns dir / name.
fs::path join_inside(const fs::path& dir, std::string_view name, std::string_view area);

/// Copies one file and fsyncs the copy.
void copy_file_durable(const fs::path& from, const fs::path& to);

}  // namespace longhaul
