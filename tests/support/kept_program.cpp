// A library for LD_PRELOAD that keeps a program after its libraries are loaded, and has a
// copy of its process run each command that it is sent. LibTorch takes a third of a
// second to load, which is most of what a short command takes. A command has a process of
// its own, with the words, the environment, the directory and the streams that it would
// have without this library. tests/kept.py sends commands.
#include <dlfcn.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);
using Streams = std::array<int, 3>;  ///< descriptors that are to be 0, 1 and 2

Main main_of_program = nullptr;

/// Receives a command and the streams that come with it. Returns the size of the command;
/// 0 if there is none.
ssize_t receive(int from, std::vector<char>& command, Streams& streams) {
  iovec into{command.data(), command.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(Streams))> control{};
  msghdr message{};
  message.msg_iov = &into;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size = ::recvmsg(from, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* const sent = CMSG_FIRSTHDR(&message);
  if (size <= 0 || sent == nullptr) return 0;
  std::memcpy(streams.data(), CMSG_DATA(sent), sizeof(streams));
  return size;
}

/// Runs the program in this process. A command is the number of arguments, the directory,
/// the arguments and the environment, with a NUL behind each.
int run(char* command, const char* end, const Streams& streams) {
  std::vector<char*> words;
  for (; command < end; command += std::strlen(command) + 1) words.push_back(command);
  words.push_back(nullptr);
  const int count = std::atoi(words[0]);
  if (::chdir(words[1]) != 0) return EXIT_FAILURE;
  for (int stream = 0; stream < 3; ++stream) {
    ::dup2(streams[static_cast<size_t>(stream)], stream);
  }
  environ = words.data() + 2 + count;
  std::vector<char*> arguments(words.begin() + 2, words.begin() + 2 + count);
  arguments.push_back(nullptr);
  return main_of_program(count, arguments.data(), environ);
}

/// Makes this process end with `parent`, which has started it and may be gone already.
void end_with(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(EXIT_FAILURE);
}

/// Takes a command from a connection, waits for its process, and sends its wait status. A
/// byte that comes meanwhile is the number of a signal for the process. If the connection
/// ends first, the process is killed.
void attend(int connection) {
  std::vector<char> command(size_t{1} << 18);
  Streams streams{};
  const ssize_t size = receive(connection, command, streams);
  if (size == 0) return;
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    end_with(self);
    ::close(connection);
    std::exit(run(command.data(), command.data() + size, streams));
  }
  for (const int stream : streams) ::close(stream);
  const auto ended = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
  std::array<pollfd, 2> waits{{{ended, POLLIN, 0}, {connection, POLLIN, 0}}};
  while (ended >= 0) {
    if (::poll(waits.data(), waits.size(), -1) < 0) continue;
    if (waits[0].revents != 0) break;
    if (waits[1].revents == 0) continue;
    unsigned char number = SIGKILL;
    if (::recv(connection, &number, 1, 0) <= 0) waits[1].fd = -1;
    ::kill(child, number);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ::send(connection, &status, sizeof(status), MSG_NOSIGNAL);
}

/// Stands in for the program's main(). Each command comes by a connection of its own.
/// Ends when the process that sends commands is gone, even if that was killed. A signal
/// at a parent's death would not do: it comes when the thread ends that has started this
/// one.
int serve(int /*argc*/, char** /*argv*/, char** /*environment*/) {
  constexpr int kBetweenLooks = 1000;  // milliseconds
  const int commands = std::atoi(std::getenv("LONGHAUL_COMMANDS"));
  const pid_t sender = std::atoi(std::getenv("LONGHAUL_SENDER"));
  const pid_t self = ::getpid();
  ::signal(SIGCHLD, SIG_IGN);  // nobody waits for the processes that attend
  pollfd wait{commands, POLLIN, 0};
  while (::getppid() == sender) {
    if (::poll(&wait, 1, kBetweenLooks) <= 0) continue;
    const int connection = ::accept4(commands, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    if (::fork() == 0) {
      end_with(self);
      ::signal(SIGCHLD, SIG_DFL);
      ::close(commands);
      attend(connection);
      ::_exit(0);
    }
    ::close(connection);
  }
  ::_exit(0);
}

}  // namespace

/// Is called with the program's main() after all libraries were initialised.
// NOLINTNEXTLINE(bugprone-reserved-identifier): that is the C library's name.
extern "C" int __libc_start_main(Main program, int argc, char** argv, void (*init)(),
                                 void (*fini)(), void (*loader_fini)(), void* stack) {
  main_of_program = program;
  const auto start = reinterpret_cast<decltype(&__libc_start_main)>(
      ::dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(serve, argc, argv, init, fini, loader_fini, stack);
}
