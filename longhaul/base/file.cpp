#include "longhaul/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "longhaul/base/missing_path.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/process.h"
#include "longhaul/base/refused.h"
#include "longhaul/base/text.h"

namespace longhaul {
namespace {

/// A file that cannot be mapped is copied into memory up to this size.
constexpr uint64_t kMostCopied = uint64_t{64} << 20;
constexpr std::string_view kMakeDirectory = "mkdir";

/// Returns whether an error may pass by itself, or once a person has freed space or
/// mended the file system. It makes no difference whether the run has made its first
/// step.
bool is_temporary(int error) {
  constexpr std::array kPassing = {
      ENOSPC,    EDQUOT,       ESTALE,   EIO,         EREMOTEIO,    ETIMEDOUT,
      ENOTCONN,  ESHUTDOWN,    ENETDOWN, ENETUNREACH, EHOSTDOWN,    EHOSTUNREACH,
      ENETRESET, ECONNREFUSED, EAGAIN,   ECONNRESET,  ECONNABORTED, EBUSY,
      ENOMEM,    ENFILE,       EMFILE,   EINTR,       ENOLCK};
  return std::ranges::find(kPassing, error) != kPassing.end();
}

/// Returns what the file system cannot do at all, if it refuses this call with this errno
/// for that reason; empty for every other refusal.
std::string_view lacking(std::string_view call, int error) {
  const bool unknown = error == EINVAL || error == ENOSYS || error == EOPNOTSUPP;
  if (call == "fsync" && unknown) return "sync this (fsync), so a power cut may lose it";
  if (call == "mmap" && (unknown || error == ENODEV)) return "map a file this large";
  return {};
}

/// Returns what a person can do about an error of a call; an empty `call` stands for any
/// call.
std::string advice(int error, std::string_view call = {}) {
  if (const auto cannot = lacking(call, error); !cannot.empty()) {
    return fmt::format("; its file system cannot {}; {}", cannot, kOtherFileSystem);
  }
  if (error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN ||
      error == EFBIG) {
    const std::string limits = limits_reached(error);
    return fmt::format(
        "{}{}; raise the limit that is reached, then run the same command again",
        limits.empty() ? "" : "; the limits are: ", limits);
  }
  if (is_temporary(error)) {
    return "; free space or mend the file system, then run the same command again";
  }
  if (error == ENOTDIR || error == EEXIST) {
    return "; a file stands where a directory was meant to be: choose another path";
  }
  if (error == ENXIO) return "; it is a pipe that nobody reads: remove it";
  if (error == EROFS) return "; choose a place that can be written";
  if (error == EACCES || error == EPERM) return "; look at its owner and permissions";
  return "";
}

/// Returns the nearest directory above a path that exists, if it lies in a file system of
/// the kernel (such as /proc), where nobody can make a directory; else an empty path.
fs::path kernel_directory(const fs::path& path) {
  constexpr std::array kKernels = {
      PROC_SUPER_MAGIC, SYSFS_MAGIC,   CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
      DEBUGFS_MAGIC,    TRACEFS_MAGIC, DEVPTS_SUPER_MAGIC, SECURITYFS_MAGIC};
  struct statfs found{};
  fs::path above = path.parent_path();
  while (::statfs(above.c_str(), &found) != 0) {
    if (!above.has_relative_path()) return {};
    above = above.parent_path();
  }
  return std::ranges::find(kKernels, found.f_type) == kKernels.end() ? fs::path() : above;
}

/// Returns why a directory could not be made, and what to do.
std::string no_directory(const fs::path& path, int error) {
  const fs::path kernel = is_temporary(error) ? fs::path() : kernel_directory(path);
  return fmt::format("the directory cannot be made: {}{}", std::strerror(error),
                     kernel.empty()
                         ? advice(error, kMakeDirectory)
                         : fmt::format("; {} shows what the kernel knows and keeps no "
                                       "directory of anybody's: choose a place on a disk",
                                       kernel.string()));
}

[[noreturn]] void fail(const fs::path& path, std::string_view call, int error) {
  if (error == ENOENT) {
    const std::string link = dangling_link(path);
    if (!link.empty()) throw InputError("file", path.string() + ": " + link);
  }
  const std::string message = fmt::format(
      "{}: {}", path.string(),
      call == kMakeDirectory ? no_directory(path, error)
                             : fmt::format("{} failed: {}{}", call, std::strerror(error),
                                           advice(error, call)));
  if (is_temporary(error)) throw TemporaryError("file", message);
  throw InputError("file", message);
}

int open_or_fail(const fs::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (fd < 0) fail(path, "open", errno);
  return fd;
}

}  // namespace

Error to_error(const fs::filesystem_error& problem) {
  const int error = problem.code().value();
  const std::string path = problem.path1().string();
  // The library writes "cannot create directory" or "cannot create directories".
  const bool makes =
      std::string_view(problem.what()).find("create director") != std::string_view::npos;
  return {is_temporary(error) ? ErrorKind::Temporary : ErrorKind::Input, "file",
          fmt::format("{}{}{}", path, path.empty() ? "" : ": ",
                      makes ? no_directory(problem.path1(), error)
                            : problem.code().message() + advice(error))};
}

bool is_seen(const fs::path& path) noexcept {
  std::error_code hidden;
  return fs::exists(path, hidden);
}

bool is_seen_directory(const fs::path& path) noexcept {
  std::error_code hidden;
  return fs::is_directory(path, hidden);
}

bool is_seen_file(const fs::path& path) noexcept {
  std::error_code hidden;
  return fs::is_regular_file(path, hidden);
}

std::vector<fs::path> paths_in(const fs::path& dir) {
  std::error_code hidden;  // an error of the opening stays unsaid
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(dir, hidden)) {
    paths.push_back(entry.path());
  }
  return paths;
}

void try_remove(const fs::path& path) noexcept {
  std::error_code ignored;
  fs::remove(path, ignored);
}

void try_remove_all(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

void Descriptor::reset() {
  if (is_open()) ::close(release());
}

Pipe make_pipe(const std::string& area) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw refused(area, "pipe", errno);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// Without O_NONBLOCK, a pipe or a device of this name would block its reader for ever.
File File::open_read(const fs::path& path) {
  File file(open_or_fail(path, O_RDONLY | O_NONBLOCK), path);
  struct stat info{};
  if (::fstat(file.fd(), &info) != 0) fail(path, "fstat", errno);
  if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) return file;
  fail_input(
      "file",
      "{}: is a pipe, a socket or a device, and no regular file; nothing is read from it",
      path.string());
}
File File::create(const fs::path& path) {
  return File(open_or_fail(path, O_WRONLY | O_CREAT | O_TRUNC), path);
}
// Without O_NONBLOCK, a pipe that nobody reads would block its writer for ever.
File File::open_append(const fs::path& path) {
  return File(open_or_fail(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK), path);
}

uint64_t File::size() const {
  struct stat info{};
  if (::fstat(fd(), &info) != 0) fail(path_, "fstat", errno);
  return static_cast<uint64_t>(info.st_size);
}

void File::write(std::span<const std::byte> bytes) {
  write(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

void File::write(std::string_view text) {
  if (!write_descriptor(fd(), text)) fail(path_, "write", errno);
}

void File::read_at(uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n =
        ::pread(fd(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path_, "pread", errno);
    if (n == 0) {
      fail_input("file",
                 "{}: ends at byte {}, {} more bytes expected; the file is truncated",
                 path_.string(), offset, bytes.size());
    }
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void File::sync() {
  if (::fsync(fd()) != 0) fail(path_, "fsync", errno);
}

void File::start_writeback(uint64_t offset, uint64_t bytes) {
  ::sync_file_range(fd(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                    SYNC_FILE_RANGE_WRITE);
}

void File::drop_cache() const { ::posix_fadvise(fd(), 0, 0, POSIX_FADV_DONTNEED); }

void File::close() {
  if (is_open() && ::close(fd_.release()) != 0) fail(path_, "close", errno);
}

void Unmap::operator()(std::byte* address) const { ::munmap(address, bytes); }

Mapping::Mapping(size_t bytes, int protection, int flags, int fd)
    : unique_ptr(nullptr, Unmap{bytes}) {
  void* const address = ::mmap(nullptr, bytes, protection, flags, fd, 0);
  if (address != MAP_FAILED) reset(static_cast<std::byte*>(address));
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const File file = File::open_read(path);
  if (fs::is_directory(path)) fail_input("file", "{}: is a directory", path.string());
  const size_t size = file.size();
  if (size == 0) return;
  // The program does not write to the mapping, so a private mapping shows the same pages
  // of the file. Some file systems (FUSE with direct_io) have no shared mappings.
  const auto map = [&](int protection, int flags, int fd) {
    data_ = Mapping(size, protection, flags, fd);
    if (!data_) fail(path, "mmap", errno);
  };
  try {
    map(PROT_READ, MAP_PRIVATE, file.fd());
  } catch (const InputError&) {
    if (size > kMostCopied) throw;
    map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    file.read_at(0, data_.bytes());
  }
}

std::string_view MappedFile::text() const {
  return {reinterpret_cast<const char*>(data_.get()), bytes().size()};
}

std::string read_text(const fs::path& path, uint64_t limit) {
  const File file = File::open_read(path);
  if (fs::is_directory(path)) fail_input("file", "{}: is a directory", path.string());
  const uint64_t size = file.size();
  if (size > limit) {
    fail_input("file", "{}: {} bytes, more than the {} that such a file may have",
               path.string(), size, limit);
  }
  std::string text(size, '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<int64_t> number_behind(const fs::path& file, std::string_view word) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(word)) continue;
    std::string_view rest = trimmed(std::string_view(line).substr(word.size()));
    const auto number = take_number<int64_t>(rest);
    if (number) return rest == " kB" ? *number * 1024 : *number;
  }
  return std::nullopt;
}

bool write_descriptor(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void write_text_atomic(const fs::path& path, std::string_view text) {
  fs::path temporary = path;
  // Another machine's process may have the same number, and write the same file.
  temporary += fmt::format(".tmp.{}.{}", host_name(), ::getpid());
  try {
    write_text_durable(temporary, text);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    fail(path, "rename", error);
  }
  sync_directory(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

void write_text_durable(const fs::path& path, std::string_view text) {
  File file = File::create(path);
  file.write(text);
  file.sync();
  file.close();
}

void make_directories_durable(const fs::path& dir) {
  const fs::path whole = fs::absolute(dir).lexically_normal();
  fs::path path;
  bool made = false;
  for (const fs::path& part : whole) {
    const fs::path parent = path;
    path /= part;
    if (part.empty() || ::mkdir(path.c_str(), 0777) != 0) {
      const int error = errno;
      // In a parent directory that is read-only or of another user, mkdir() fails with an
      // error other than EEXIST even if the directory exists.
      if (part.empty() || error == EEXIST || fs::is_directory(path)) continue;
      fail(path, kMakeDirectory, error);
    }
    sync_directory(parent);
    made = true;
  }
  if (!fs::is_directory(whole)) fail(whole, kMakeDirectory, ENOTDIR);
  if (made) return;
  try {
    // The maker of the directory may have been killed before the directory's name was
    // durable.
    sync_directory(whole.parent_path());
  } catch (const InputError&) {
    // The parent belongs to another user, and this process may not even open it. Then
    // other programs make its names durable.
  }
}

std::optional<bool> rename_at_once(const fs::path& from, const fs::path& to) {
  if (::link(from.c_str(), to.c_str()) == 0) {
    ::unlink(from.c_str());
    return true;
  }
  int error = errno;
  if (error == EEXIST) return false;
  if (error != EPERM && error != EOPNOTSUPP && error != ENOSYS && error != EMLINK) {
    fail(to, "link", error);
  }
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
    return true;
  }
  error = errno;
  if (error == EEXIST) return false;
  if (error == EINVAL || error == EOPNOTSUPP || error == ENOSYS) return std::nullopt;
  fail(to, "rename", error);
}

bool rename_to_new(const fs::path& from, const fs::path& to) {
  if (const auto renamed = rename_at_once(from, to)) return *renamed;
  if (fs::exists(to)) return false;
  if (::rename(from.c_str(), to.c_str()) != 0) fail(to, "rename", errno);
  return true;
}

void sync_directory(const fs::path& dir) { File::open_read(dir).sync(); }

fs::path join_inside(const fs::path& dir, std::string_view name, std::string_view area) {
  const fs::path part(name);
  bool inside =
      !name.empty() && part.is_relative() && name.find('\0') == std::string_view::npos;
  for (const fs::path& piece : part) inside = inside && piece != "..";
  if (!inside) {
    fail_input(std::string(area), "{}: the name '{}' leaves its directory; refused",
               dir.string(), name.substr(0, name.find('\0')));
  }
  return dir / part;
}

void copy_file_durable(const fs::path& from, const fs::path& to) {
  write_text_durable(to, MappedFile(from).text());
}

}  // namespace longhaul
