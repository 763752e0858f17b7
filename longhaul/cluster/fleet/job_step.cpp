#include "longhaul/cluster/fleet/job_step.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <regex>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/refused.h"

namespace longhaul::cluster {
namespace {

constexpr size_t kLongestLine = 4096;
/// Seconds for which a reader may take nothing of the output that an ended command has
/// left.
constexpr double kReaderSeconds = 2.0;

/// The descriptors that become the standard streams of a command; -1: this process's own
/// stream.
struct Streams {
  int input = -1;
  int output = -1;
  int errors = -1;
};

/// Becomes the command, in the child.
[[noreturn]] void become(const std::vector<std::string>& command,
                         const std::map<std::string, std::string>& environment,
                         const Streams& streams, pid_t parent, int at_our_death) {
  // Signals for the supervisor (Ctrl-C) do not reach the command; the supervisor hands
  // them on.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, at_our_death);
  if (::getppid() != parent) ::_exit(1);
  ::dup2(streams.errors, STDERR_FILENO);
  if (streams.output >= 0) ::dup2(streams.output, STDOUT_FILENO);
  if (streams.input >= 0) ::dup2(streams.input, STDIN_FILENO);
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  struct sigaction hangup{};
  ::sigaction(SIGHUP, nullptr, &hangup);
  const bool nohup = hangup.sa_handler == SIG_IGN;
  for (int number = 1; number < NSIG; ++number) {
    if (number != SIGHUP || !nohup) ::signal(number, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvp(arguments[0], arguments.data());
  const std::string problem =
      fmt::format("longhaul: error: [launch] {} cannot be started: {}\n", command[0],
                  std::strerror(errno));
  (void)!::write(STDERR_FILENO, problem.data(), problem.size());
  ::_exit(127);
}

/// Returns the end of a pipe from which this text, and nothing more, can be read.
Descriptor holding(const std::string& text) {
  Pipe pipe = make_pipe("launch");
  const int end = pipe.write.get();
  ::fcntl(end, F_SETFL, O_NONBLOCK);
  // A pipe holds at least a page, and 64 KiB as long as the user has few pipes.
  constexpr size_t kPage = 4096;
  if (text.size() > kPage) ::fcntl(end, F_SETPIPE_SZ, text.size() + kPage);
  const ssize_t put = ::write(end, text.data(), text.size());
  if (put == static_cast<ssize_t>(text.size())) return std::move(pipe.read);
  fail_temporary(
      "launch",
      "a pipe does not hold the {} bytes of a command's input; let run.pass_environment "
      "name fewer variables, or raise /proc/sys/fs/pipe-max-size",
      text.size());
}

}  // namespace

std::optional<std::pair<int, int>> killed_rank(const std::string& line) {
  static const std::regex by_mpirun(
      R"(process rank (\d{1,7}) with PID \d+ on node \S+ exited on signal (\d{1,2}))");
  static const std::regex by_srun(R"(srun: error: \S+: tasks? ([\d,\[\]-]+): (.+))");
  std::smatch found;
  if (std::regex_search(line, found, by_mpirun)) {
    return std::pair(std::stoi(found[1]), std::stoi(found[2]));
  }
  if (std::regex_search(line, found, by_srun)) {
    const std::string what = found[2];
    const std::string tasks = found[1];
    const bool one = tasks.find_first_not_of("0123456789") == std::string::npos;
    const int rank = one && tasks.size() < 8 ? std::stoi(tasks) : -1;
    constexpr std::array<std::pair<const char*, int>, 6> words = {
        {{"Killed", SIGKILL},
         {"Segmentation fault", SIGSEGV},
         {"Aborted", SIGABRT},
         {"Bus error", SIGBUS},
         {"Terminated", SIGTERM},
         {"Out Of Memory", SIGKILL}}};
    for (const auto& [word, number] : words) {
      if (what.starts_with(word)) return std::pair(rank, number);
    }
  }
  return std::nullopt;
}

std::optional<std::pair<int, LauncherEnd::Exit>> failed_rank(const std::string& line) {
  static const std::regex by_srun(
      R"(srun: error: (\S+): tasks? \[?(\d{1,7})[\d,\]-]*: Exited with exit code (\d{1,3})$)");
  std::smatch found;
  if (!std::regex_search(line, found, by_srun)) return std::nullopt;
  return std::pair(std::stoi(found[2]),
                   LauncherEnd::Exit{found[1].str(), std::stoi(found[3])});
}

JobStep JobStep::start(const std::vector<std::string>& command,
                       const std::map<std::string, std::string>& environment,
                       const std::string& input, int at_our_death) {
  const Descriptor reads = input.empty() ? Descriptor() : holding(input);
  Pipe errors = make_pipe("launch");
  JobStep step;
  const Streams streams{reads.get(), step.output_.launcher_end(), errors.write.get()};
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) become(command, environment, streams, parent, at_our_death);
  if (child < 0) throw refused("launch", "process", errno);
  ::fcntl(errors.read.get(), F_SETFL, O_NONBLOCK);
  step.output_.started();
  step.pid_ = child;
  step.errors_ = std::move(errors.read);
  return step;
}

JobStep::JobStep(JobStep&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      errors_(std::move(other.errors_)),
      rest_(std::move(other.rest_)),
      noise_(std::move(other.noise_)),
      output_(std::move(other.output_)),
      end_(std::move(other.end_)),
      ended_(other.ended_) {}

JobStep::~JobStep() {
  if (pid_ > 0 && !ended_) {
    ::kill(static_cast<pid_t>(-pid_), SIGKILL);
    ::kill(static_cast<pid_t>(pid_), SIGKILL);
    while (::waitpid(static_cast<pid_t>(pid_), nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void JobStep::read_line(const std::string& line) {
  if (const auto killed = killed_rank(line)) {
    end_.signals.emplace(killed->first, killed->second);
  }
  if (const auto failed = failed_rank(line)) {
    end_.exits.emplace(failed->first, failed->second);
  }
  show(noise_.pass(line));
}

void JobStep::show(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    // stderr never waits for a reader (standard_streams.h).
    std::fputs((line + "\n").c_str(), stderr);
    if (line.find_first_not_of(" \t-") != std::string::npos) end_.last_line = line;
  }
}

void JobStep::drain() {
  output_.copy();
  std::array<char, 4096> buffer{};
  while (true) {
    const ssize_t got = ::read(errors_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    rest_.append(buffer.data(), static_cast<size_t>(got));
    size_t newline = 0;
    while ((newline = rest_.find('\n')) != std::string::npos) {
      read_line(rest_.substr(0, newline));
      rest_.erase(0, newline + 1);
    }
    if (rest_.size() > kLongestLine) read_line(std::exchange(rest_, {}));
  }
}

std::optional<LauncherEnd> JobStep::poll() {
  drain();
  if (ended_) return end_;
  int status = 0;
  const pid_t got = ::waitpid(static_cast<pid_t>(pid_), &status, WNOHANG);
  if (got != pid_) return std::nullopt;
  ended_ = true;
  drain();
  output_.finish(kReaderSeconds);
  if (!rest_.empty()) read_line(std::exchange(rest_, {}));
  show(noise_.rest());
  end_.cause = noise_.cause();
  end_.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return end_;
}

void JobStep::signal(int number) const {
  if (!ended_) ::kill(static_cast<pid_t>(pid_), number);
}

}  // namespace longhaul::cluster
