// A library for LD_PRELOAD that breaks the disk under one directory, and records what a
// program does there. Tests only. Settings come from the environment:
//   LONGHAUL_FAULT_DIR     the directory; without it every call passes
//   LONGHAUL_FAULT         rules, separated by ';', each ACTION:key=value:...
//   LONGHAUL_FAULT_RANK    only in the process of this MPI rank
//   LONGHAUL_FAULT_HOST    only in processes of the machine of this name
//   LONGHAUL_FAULT_RECORD  a file that receives every change, with its bytes
//
// Actions are kill (SIGKILL to the process; when=before|after), fail (error=ENOSPC),
// short (half of the bytes), slow (ms=5) and pause (makes PATH.reached, then waits until
// the file gate=PATH exists). nosync counts syncs and does none. Keys of all actions:
//   op=create|write|sync|rename|exclusive (a rename with flags)|link|unlink|mkdir|
//   truncate|close|read|map|share (a shared mapping)|change (the default: all but the
//   four before), path=PART of the path, n=NUMBER of the matching call (from 1; absent:
//   every call), forever=1 (call n and all after it)
// Where several rules match a call, the first one counts; slow and nosync combine with
// any other. Calls are made with syscall(2), so that nothing here depends on other
// libraries that intercept them.

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

namespace {

enum Op : unsigned {
  kCreate = 1,  // an existing file that is cut at its opening counts too
  kWrite = 2,
  kSync = 4,
  kRename = 8,
  kLink = 16,
  kUnlink = 32,  // removes a file or a directory
  kMkdir = 64,
  kTruncate = 128,
  kClose = 256,
  kRead = 512,
  kMap = 1024,
  kShare = 2048,
  kExclusive = 4096,
};
constexpr unsigned kChange =
    kCreate | kWrite | kSync | kRename | kLink | kUnlink | kMkdir | kTruncate;

struct Named {
  const char* name;
  unsigned value;
};
constexpr Named kOps[] = {
    {"create", kCreate}, {"write", kWrite},        {"sync", kSync},
    {"rename", kRename}, {"link", kLink},          {"unlink", kUnlink},
    {"mkdir", kMkdir},   {"truncate", kTruncate},  {"close", kClose},
    {"read", kRead},     {"change", kChange},      {"map", kMap},
    {"share", kShare},   {"exclusive", kExclusive}};
constexpr Named kErrors[] = {
    {"ENOSPC", ENOSPC},         {"EDQUOT", EDQUOT},       {"EIO", EIO},
    {"ESTALE", ESTALE},         {"EROFS", EROFS},         {"EACCES", EACCES},
    {"ENOTCONN", ENOTCONN},     {"ESHUTDOWN", ESHUTDOWN}, {"ETIMEDOUT", ETIMEDOUT},
    {"EPROTO", EPROTO},         {"ENOSYS", ENOSYS},       {"EINVAL", EINVAL},
    {"EOPNOTSUPP", EOPNOTSUPP}, {"EPERM", EPERM},         {"ENODEV", ENODEV}};

struct Rule {
  std::string action;
  unsigned ops = kChange;
  std::string path;
  std::string gate;
  long n = 0;
  bool forever = false;
  bool after = false;
  int error = EIO;
  long milliseconds = 0;
  long count = 0;
};

[[noreturn]] void refuse(const char* what, const std::string& text) {
  const std::string line = std::string("fault_files: ") + what + " '" + text + "'\n";
  syscall(SYS_write, 2, line.data(), line.size());
  _exit(99);
}

unsigned value_of(const Named* begin, const Named* end, const std::string& name) {
  for (const Named* item = begin; item != end; ++item) {
    if (name == item->name) return item->value;
  }
  refuse("unknown name", name);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Rule parse_rule(const std::string& text) {
  const std::vector<std::string> parts = split(text, ':');
  Rule rule;
  rule.action = parts[0];
  if (rule.action == "nosync") rule.ops = kSync;
  for (size_t i = 1; i < parts.size(); ++i) {
    const size_t equals = parts[i].find('=');
    if (equals == std::string::npos) refuse("no '=' in", parts[i]);
    const std::string key = parts[i].substr(0, equals);
    const std::string value = parts[i].substr(equals + 1);
    if (key == "op") {
      rule.ops = value_of(std::begin(kOps), std::end(kOps), value);
    } else if (key == "path") {
      rule.path = value;
    } else if (key == "gate") {
      rule.gate = value;
    } else if (key == "n") {
      rule.n = std::atol(value.c_str());
    } else if (key == "forever") {
      rule.forever = value == "1";
    } else if (key == "when") {
      rule.after = value == "after";
    } else if (key == "error") {
      rule.error =
          static_cast<int>(value_of(std::begin(kErrors), std::end(kErrors), value));
    } else if (key == "ms") {
      rule.milliseconds = std::atol(value.c_str());
    } else {
      refuse("unknown key", key);
    }
  }
  return rule;
}

/// What is to happen to one call.
struct Verdict {
  bool kill_before = false;
  bool kill_after = false;
  bool half = false;
  bool no_sync = false;
  int error = 0;
  long milliseconds = 0;
  std::string gate;
};

class Faults {
 public:
  static Faults& get() {
    static Faults faults;
    return faults;
  }

  bool active() const { return !dir_.empty(); }
  bool inside(const std::string& path) const {
    return active() && path.compare(0, dir_.size(), dir_) == 0 &&
           (path.size() == dir_.size() || path[dir_.size()] == '/');
  }

  Verdict judge(unsigned op, const std::string& path) {
    const Lock lock(*this);
    Verdict verdict;
    bool decided = false;
    for (Rule& rule : rules_) {
      if ((rule.ops & op) == 0 || path.find(rule.path) == std::string::npos) continue;
      ++rule.count;
      if (rule.n != 0 && rule.count != rule.n && !(rule.forever && rule.count > rule.n)) {
        continue;
      }
      if (rule.action == "slow") {
        verdict.milliseconds = rule.milliseconds;
      } else if (rule.action == "nosync") {
        verdict.no_sync = true;
      } else if (!decided) {
        decided = true;
        decide(rule, verdict);
      }
    }
    return verdict;
  }

  /// Writes a line of the record: operation, file number, offset, bytes, path, second
  /// path; then the bytes.
  void record(const char* op, ino_t file, off_t offset, const std::string& path,
              const std::string& other = {}, const std::string& bytes = {}) {
    if (record_ < 0) return;
    const std::string text =
        std::string(op) + '\t' + std::to_string(file) + '\t' + std::to_string(offset) +
        '\t' + std::to_string(bytes.size()) + '\t' + path + '\t' + other + '\n' + bytes;
    size_t done = 0;
    while (done < text.size()) {
      const long n = syscall(SYS_write, record_, text.data() + done, text.size() - done);
      if (n < 0) refuse("cannot record", std::strerror(errno));
      done += static_cast<size_t>(n);
    }
  }

  struct Lock {
    explicit Lock(Faults& faults) : mutex(&faults.mutex_) { pthread_mutex_lock(mutex); }
    ~Lock() { pthread_mutex_unlock(mutex); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    pthread_mutex_t* mutex;
  };

 private:
  Faults() {
    const char* rank = std::getenv("LONGHAUL_FAULT_RANK");
    const char* mine = std::getenv("OMPI_COMM_WORLD_RANK");
    if (rank != nullptr && (mine == nullptr || std::strcmp(rank, mine) != 0)) return;
    const char* host = std::getenv("LONGHAUL_FAULT_HOST");
    char here[HOST_NAME_MAX + 1] = {};
    if (host != nullptr &&
        (gethostname(here, sizeof here) != 0 || std::strcmp(host, here) != 0)) {
      return;
    }
    const char* dir = std::getenv("LONGHAUL_FAULT_DIR");
    if (dir == nullptr) return;
    if (const char* rules = std::getenv("LONGHAUL_FAULT")) {
      for (const std::string& text : split(rules, ';')) {
        if (!text.empty()) rules_.push_back(parse_rule(text));
      }
    }
    dir_ = dir;
    const char* record_path = std::getenv("LONGHAUL_FAULT_RECORD");
    if (record_path == nullptr) return;
    record_ = static_cast<int>(syscall(SYS_openat, AT_FDCWD, record_path,
                                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (record_ < 0) refuse("cannot open", record_path);
  }

  static void decide(const Rule& rule, Verdict& verdict) {
    if (rule.action == "kill") {
      verdict.kill_before = !rule.after;
      verdict.kill_after = rule.after;
    } else if (rule.action == "fail") {
      verdict.error = rule.error;
    } else if (rule.action == "short") {
      verdict.half = true;
    } else if (rule.action == "pause") {
      verdict.gate = rule.gate;
    } else {
      refuse("unknown action", rule.action);
    }
  }

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  std::string dir_;
  std::vector<Rule> rules_;
  int record_ = -1;
};

void sleep_milliseconds(long milliseconds) {
  timespec time = {milliseconds / 1000, milliseconds % 1000 * 1'000'000};
  syscall(SYS_nanosleep, &time, nullptr);
}

void wait_for(const std::string& gate) {
  const std::string reached = gate + ".reached";
  const long fd =
      syscall(SYS_openat, AT_FDCWD, reached.c_str(), O_WRONLY | O_CREAT, 0644);
  syscall(SYS_close, fd);
  while (syscall(SYS_faccessat, AT_FDCWD, gate.c_str(), F_OK) != 0) sleep_milliseconds(1);
}

/// Judges a call, and makes it where the verdict is to make it. `perform(half)` makes and
/// records the call.
template <typename Perform>
long run(unsigned op, const std::string& path, Perform perform) {
  Faults& faults = Faults::get();
  const Verdict verdict = faults.judge(op, path);
  if (!verdict.gate.empty()) wait_for(verdict.gate);
  if (verdict.milliseconds > 0) sleep_milliseconds(verdict.milliseconds);
  if (verdict.kill_before) syscall(SYS_kill, getpid(), SIGKILL);
  if (verdict.error != 0 && op != kClose) {
    errno = verdict.error;
    return -1;
  }
  long result = 0;
  int error = 0;
  {
    const Faults::Lock lock(faults);
    result = perform(verdict);
    error = verdict.error != 0 ? verdict.error : errno;
  }
  if (verdict.kill_after) syscall(SYS_kill, getpid(), SIGKILL);
  errno = error;
  return verdict.error != 0 ? -1 : result;
}

// Returns the path of an open file as the kernel knows it, without the mark of a removed
// name.
std::string path_of(int fd) {
  if (!Faults::get().active()) return {};
  char link[PATH_MAX] = {};
  const std::string name = "/proc/self/fd/" + std::to_string(fd);
  const long n = syscall(SYS_readlinkat, AT_FDCWD, name.c_str(), link, sizeof link - 1);
  std::string path(link, n > 0 ? static_cast<size_t>(n) : 0);
  const std::string mark = " (deleted)";
  if (path.size() > mark.size() &&
      path.compare(path.size() - mark.size(), mark.size(), mark) == 0) {
    path.resize(path.size() - mark.size());
  }
  return path;
}

std::string path_of(int dir, const char* name) {
  if (!Faults::get().active() || name == nullptr) return {};
  if (name[0] == '/') return name;
  if (dir != AT_FDCWD) return path_of(dir) + "/" + name;
  char here[PATH_MAX] = {};
  syscall(SYS_getcwd, here, sizeof here);
  return std::string(here) + "/" + name;
}

ino_t number_of(int fd) {
  struct stat info{};
  return ::fstat(fd, &info) == 0 ? info.st_ino : 0;
}

ino_t number_of(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

long open_file(int dir, const char* name, int flags, mode_t mode) {
  const auto direct = [&] { return syscall(SYS_openat, dir, name, flags, mode); };
  const std::string path = path_of(dir, name);
  if ((flags & (O_CREAT | O_TRUNC)) == 0 || !Faults::get().inside(path)) return direct();
  return run(kCreate, path, [&](const Verdict&) {
    const bool there = number_of(path) != 0;
    const long fd = direct();
    if (fd < 0) return fd;
    const ino_t number = number_of(static_cast<int>(fd));
    if (!there) Faults::get().record("create", number, 0, path);
    if (there && (flags & O_TRUNC) != 0)
      Faults::get().record("truncate", number, 0, path);
    return fd;
  });
}

ssize_t write_file(int fd, const void* data, size_t size, off_t offset) {
  const auto direct = [&](size_t bytes) {
    return offset < 0 ? syscall(SYS_write, fd, data, bytes)
                      : syscall(SYS_pwrite64, fd, data, bytes, offset);
  };
  const std::string path = path_of(fd);
  if (!Faults::get().inside(path)) return direct(size);
  return run(kWrite, path, [&](const Verdict& verdict) {
    const long n = direct(verdict.half && size > 1 ? size / 2 : size);
    if (n <= 0) return n;
    const off_t begin =
        offset < 0 ? static_cast<off_t>(syscall(SYS_lseek, fd, 0, SEEK_CUR)) - n : offset;
    Faults::get().record(
        "write", number_of(fd), begin, path, {},
        std::string(static_cast<const char*>(data), static_cast<size_t>(n)));
    return n;
  });
}

ssize_t read_file(int fd, void* data, size_t size, off_t offset) {
  const auto direct = [&](size_t bytes) {
    return offset < 0 ? syscall(SYS_read, fd, data, bytes)
                      : syscall(SYS_pread64, fd, data, bytes, offset);
  };
  const std::string path = path_of(fd);
  if (!Faults::get().inside(path)) return direct(size);
  return run(kRead, path, [&](const Verdict& verdict) {
    return direct(verdict.half && size > 1 ? size / 2 : size);
  });
}

int sync_file(int fd, long number) {
  const std::string path = path_of(fd);
  if (!Faults::get().inside(path)) return static_cast<int>(syscall(number, fd));
  return static_cast<int>(run(kSync, path, [&](const Verdict& verdict) {
    const long result = verdict.no_sync ? 0 : syscall(number, fd);
    if (result == 0) Faults::get().record("sync", number_of(fd), 0, path);
    return result;
  }));
}

int rename_file(int from_dir, const char* from, int to_dir, const char* to,
                unsigned flags) {
  const auto direct = [&] {
    return syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
  };
  const std::string source = path_of(from_dir, from);
  const std::string target = path_of(to_dir, to);
  if (!Faults::get().inside(target)) return static_cast<int>(direct());
  const unsigned op = kRename | (flags != 0 ? kExclusive : 0U);
  return static_cast<int>(run(op, target, [&](const Verdict&) {
    const long result = direct();
    if (result == 0) Faults::get().record("rename", number_of(target), 0, source, target);
    return result;
  }));
}

int link_file(int from_dir, const char* from, int to_dir, const char* to, int flags) {
  const auto direct = [&] {
    return syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
  };
  const std::string source = path_of(from_dir, from);
  const std::string target = path_of(to_dir, to);
  if (!Faults::get().inside(target)) return static_cast<int>(direct());
  return static_cast<int>(run(kLink, target, [&](const Verdict&) {
    const long result = direct();
    if (result == 0) Faults::get().record("link", number_of(target), 0, source, target);
    return result;
  }));
}

int unlink_file(int dir, const char* name, int flags) {
  const auto direct = [&] { return syscall(SYS_unlinkat, dir, name, flags); };
  const std::string path = path_of(dir, name);
  if (!Faults::get().inside(path)) return static_cast<int>(direct());
  return static_cast<int>(run(kUnlink, path, [&](const Verdict&) {
    const ino_t number = number_of(path);
    const long result = direct();
    if (result == 0) Faults::get().record("unlink", number, 0, path);
    return result;
  }));
}

int make_directory(int dir, const char* name, mode_t mode) {
  const auto direct = [&] { return syscall(SYS_mkdirat, dir, name, mode); };
  const std::string path = path_of(dir, name);
  if (!Faults::get().inside(path)) return static_cast<int>(direct());
  return static_cast<int>(run(kMkdir, path, [&](const Verdict&) {
    const long result = direct();
    if (result == 0) Faults::get().record("mkdir", number_of(path), 0, path);
    return result;
  }));
}

int cut_file(int fd, off_t size) {
  const std::string path = path_of(fd);
  if (!Faults::get().inside(path))
    return static_cast<int>(syscall(SYS_ftruncate, fd, size));
  return static_cast<int>(run(kTruncate, path, [&](const Verdict&) {
    const long result = syscall(SYS_ftruncate, fd, size);
    if (result == 0) Faults::get().record("truncate", number_of(fd), size, path);
    return result;
  }));
}

int cut_file(const char* name, off_t size) {
  const std::string path = path_of(AT_FDCWD, name);
  if (!Faults::get().inside(path))
    return static_cast<int>(syscall(SYS_truncate, name, size));
  return static_cast<int>(run(kTruncate, path, [&](const Verdict&) {
    const long result = syscall(SYS_truncate, name, size);
    if (result == 0) Faults::get().record("truncate", number_of(path), size, path);
    return result;
  }));
}

mode_t mode_argument(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

FILE* open_stream(const char* name, const char* mode) {
  int flags = std::strchr(mode, '+') != nullptr ? O_RDWR
              : mode[0] == 'r'                  ? O_RDONLY
                                                : O_WRONLY;
  if (mode[0] == 'w') flags |= O_CREAT | O_TRUNC;
  if (mode[0] == 'a') flags |= O_CREAT | O_APPEND;
  if (std::strchr(mode, 'e') != nullptr) flags |= O_CLOEXEC;
  const long fd = open_file(AT_FDCWD, name, flags, 0666);
  return fd < 0 ? nullptr : ::fdopen(static_cast<int>(fd), mode);
}

}  // namespace

extern "C" {

/// Writes a line of the tested program's own into the record.
void longhaul_fault_marker(const char* text) {
  Faults& faults = Faults::get();
  const Faults::Lock lock(faults);
  faults.record("marker", 0, 0, text);
}

#define LH_OPEN(name)                                                \
  int name(const char* path, int flags, ...) {                       \
    va_list arguments;                                               \
    va_start(arguments, flags);                                      \
    const mode_t mode = mode_argument(flags, arguments);             \
    va_end(arguments);                                               \
    return static_cast<int>(open_file(AT_FDCWD, path, flags, mode)); \
  }
#define LH_OPENAT(name)                                         \
  int name(int dir, const char* path, int flags, ...) {         \
    va_list arguments;                                          \
    va_start(arguments, flags);                                 \
    const mode_t mode = mode_argument(flags, arguments);        \
    va_end(arguments);                                          \
    return static_cast<int>(open_file(dir, path, flags, mode)); \
  }
LH_OPEN(open)
LH_OPEN(open64)
LH_OPENAT(openat)
LH_OPENAT(openat64)

int creat(const char* path, mode_t mode) {
  return static_cast<int>(open_file(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode));
}
FILE* fopen(const char* path, const char* mode) { return open_stream(path, mode); }
FILE* fopen64(const char* path, const char* mode) { return open_stream(path, mode); }

ssize_t write(int fd, const void* data, size_t size) {
  return write_file(fd, data, size, -1);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  return write_file(fd, data, size, offset);
}
[[gnu::alias("pwrite")]] ssize_t pwrite64(int, const void*, size_t, off_t);
ssize_t writev(int fd, const iovec* parts, int count) {
  if (!Faults::get().inside(path_of(fd))) return syscall(SYS_writev, fd, parts, count);
  std::string all;
  for (int i = 0; i < count; ++i) {
    all.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  }
  return write_file(fd, all.data(), all.size(), -1);
}
ssize_t read(int fd, void* data, size_t size) { return read_file(fd, data, size, -1); }
ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  return read_file(fd, data, size, offset);
}
[[gnu::alias("pread")]] ssize_t pread64(int, void*, size_t, off_t);
int fsync(int fd) { return sync_file(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }
int rename(const char* from, const char* to) {
  return rename_file(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat(int from_dir, const char* from, int to_dir, const char* to) {
  return rename_file(from_dir, from, to_dir, to, 0);
}
int renameat2(int from_dir, const char* from, int to_dir, const char* to,
              unsigned flags) {
  return rename_file(from_dir, from, to_dir, to, flags);
}
int link(const char* from, const char* to) {
  return link_file(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int linkat(int from_dir, const char* from, int to_dir, const char* to, int flags) {
  return link_file(from_dir, from, to_dir, to, flags);
}
int unlink(const char* path) { return unlink_file(AT_FDCWD, path, 0); }
int unlinkat(int dir, const char* path, int flags) {
  return unlink_file(dir, path, flags);
}
int rmdir(const char* path) { return unlink_file(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) {
  struct stat info{};
  const bool directory = ::lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
  return unlink_file(AT_FDCWD, path, directory ? AT_REMOVEDIR : 0);
}
int mkdir(const char* path, mode_t mode) { return make_directory(AT_FDCWD, path, mode); }
int mkdirat(int dir, const char* path, mode_t mode) {
  return make_directory(dir, path, mode);
}
int ftruncate(int fd, off_t size) { return cut_file(fd, size); }
int ftruncate64(int fd, off_t size) { return cut_file(fd, size); }
int truncate(const char* path, off_t size) { return cut_file(path, size); }
int truncate64(const char* path, off_t size) { return cut_file(path, size); }
void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
  const auto direct = [&](const Verdict&) {
    return syscall(SYS_mmap, at, size, protection, flags, fd, offset);
  };
  const std::string path = path_of(fd);
  if (!Faults::get().inside(path)) return reinterpret_cast<void*>(direct({}));
  const unsigned op = (flags & MAP_SHARED) != 0 ? kMap | kShare : kMap;
  return reinterpret_cast<void*>(run(op, path, direct));
}
[[gnu::alias("mmap")]] void* mmap64(void*, size_t, int, int, int, off_t);

int close(int fd) {
  const std::string path = path_of(fd);
  const auto direct = [&] { return syscall(SYS_close, fd); };
  if (!Faults::get().inside(path)) return static_cast<int>(direct());
  return static_cast<int>(run(kClose, path, [&](const Verdict&) { return direct(); }));
}

}  // extern "C"
