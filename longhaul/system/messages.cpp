#include "longhaul/system/messages.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "longhaul/base/refused.h"

extern char** environ;

namespace longhaul::system {
namespace {

constexpr int kFirstDescriptor = 3;
constexpr std::chrono::seconds kEndSeconds{5};

}  // namespace

pid_t start_own_process(const std::string& area, const fs::path& program,
                        const std::vector<int>& descriptors,
                        std::vector<std::string> arguments) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  // The copies have numbers above those of the new process. So dup2 to one of those
  // numbers closes no descriptor that is still to be copied.
  const int end = kFirstDescriptor + static_cast<int>(descriptors.size());
  std::vector<Descriptor> high;
  for (const int descriptor : descriptors) {
    high.emplace_back(::fcntl(descriptor, F_DUPFD_CLOEXEC, end));
    ::posix_spawn_file_actions_adddup2(
        &actions, high.back().get(),
        kFirstDescriptor + static_cast<int>(high.size()) - 1);
  }
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::string name = program.string();
  std::vector<char*> words = {name.data()};
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  pid_t child = -1;
  const int error = !std::ranges::all_of(high, &Descriptor::is_open)
                        ? EMFILE
                        : ::posix_spawn(&child, name.c_str(), &actions, &attributes,
                                        words.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw refused(area, "the process " + name, error);
  return child;
}

void await_own_process(pid_t process) {
  const auto last = std::chrono::steady_clock::now() + kEndSeconds;
  auto pause = std::chrono::milliseconds(1);
  while (::waitpid(process, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > last) {
      ::kill(process, SIGKILL);
      break;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(100));
  }
}

bool send_all(int socket, const void* data, size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = ::send(socket, from, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    from += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, void* data, size_t size) {
  char* to = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::recv(socket, to, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool send_text(int socket, const std::string& text) {
  const uint64_t size = text.size();
  return send_all(socket, &size, sizeof(size)) &&
         send_all(socket, text.data(), text.size());
}

bool receive_text(int socket, std::string& text, uint64_t limit) {
  uint64_t size = 0;
  if (!receive_all(socket, &size, sizeof(size)) || size > limit) return false;
  text.resize(size);
  return receive_all(socket, text.data(), text.size());
}

}  // namespace longhaul::system
