#include "apps/start/launch_ground.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/system/open_files.h"

namespace longhaul::apps {
namespace {

constexpr const char* kArea = "launch";
/// The bytes that mpirun and its ranks write in mpirun's directory (8.4 MB with 2 ranks),
/// with some to spare. With less room Open MPI 4.1 hangs or crashes.
constexpr off_t kMpirunBytes = 10'000'000;
/// The largest file that Open MPI makes in mpirun's directory and in /dev/shm, with some
/// to spare.
constexpr uint64_t kMpirunFileBytes = 16'000'000;

[[noreturn]] void refuse_directory(const fs::path& dir, int error) {
  const bool room = error == ENOSPC || error == EDQUOT;
  const std::string text = fmt::format(
      "mpirun keeps its files in {}, where no directory or no file of {} can "
      "be made: {}; {}",
      dir.string(), human_bytes(kMpirunBytes), std::strerror(error),
      room ? "make room there, or set TMPDIR to another directory"
           : "set TMPDIR to a directory that can be written, such as /tmp");
  if (room) throw TemporaryError(kArea, text);
  throw ConfigError(kArea, text);
}

/// Returns 0 if a listener at 127.0.0.1 can be connected to, else the errno.
int try_loopback() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const place = reinterpret_cast<sockaddr*>(&address);
  const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.is_open() || ::bind(listener.get(), place, size) != 0 ||
      ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), place, &size) != 0) {
    return errno;
  }
  // A connection to the same machine succeeds or fails at once, so no wait is needed.
  const Descriptor caller(
      ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!caller.is_open()) return errno;
  return ::connect(caller.get(), place, size) == 0 ? 0 : errno;
}

}  // namespace

fs::path mpirun_directory(const Environment& environment) {
  for (const char* name : {"OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base",
                           "TMPDIR", "TEMP", "TMP"}) {
    const char* const value = environment(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "/tmp";
}

void check_mpirun_directory(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) refuse_directory(dir, error.value());
  std::string probe = (dir / "longhaul-launch-XXXXXX").string();
  if (::mkdtemp(probe.data()) == nullptr) refuse_directory(dir, errno);
  // A full file system may still have room for a directory.
  const std::string file = probe + "/file";
  const Descriptor fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const int problem = fd.is_open() ? ::posix_fallocate(fd.get(), 0, kMpirunBytes) : errno;
  ::unlink(file.c_str());
  ::rmdir(probe.c_str());
  if (problem != 0) refuse_directory(dir, problem);
}

void check_mpirun_user(const Environment& environment, bool known, bool over_ssh) {
  if (known) return;
  const std::string who =
      fmt::format("the user {} has no entry in /etc/passwd", ::geteuid());
  if (over_ssh) throw ConfigError(kArea, who + ", and ssh refuses such users; add one");
  const char* const home = environment("HOME");
  if (home != nullptr && *home != '\0') return;
  throw ConfigError(kArea, who +
                               " and HOME is not set, so mpirun would crash; set HOME to "
                               "a directory of this user");
}

void check_loopback() {
  const int error = try_loopback();
  if (error == 0 || error == EINPROGRESS) return;
  fail_config(kArea,
              "127.0.0.1 cannot be reached on this machine: {}; mpirun and its ranks "
              "need an IPv4 address: ip link set lo up, and ip addr add 127.0.0.1/8 dev "
              "lo (one rank, -n 1, needs none)",
              std::strerror(error));
}

void check_launch_ground(bool over_ssh) {
  check_mpirun_user(std::getenv, ::getpwuid(::geteuid()) != nullptr, over_ssh);
  system::need_file_size(kMpirunFileBytes, kArea, "mpirun");
  check_mpirun_directory(mpirun_directory(std::getenv));
  check_loopback();
}

}  // namespace longhaul::apps
