#include "longhaul/cluster/process/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/refused.h"
#include "longhaul/base/text.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

/// Seconds for which the output of a command's descendants is read after the command has
/// ended.
constexpr double kLastWords = 0.2;

std::vector<std::string> merged_environment(const CommandOptions& options) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto named = [&](const auto& change) {
      return text.starts_with(change.first + "=");
    };
    if (std::ranges::none_of(options.environment, named)) result.emplace_back(text);
  }
  for (const auto& [name, value] : options.environment) {
    if (!value.empty()) result.push_back(fmt::format("{}={}", name, value));
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

/// The settings of posix_spawn: a process group of its own, no signal blocked or ignored,
/// the file for input, these descriptors for output.
class SpawnSettings {
 public:
  SpawnSettings(const std::string& input, int output, int errors) {
    ::posix_spawnattr_init(&attributes_);
    ::posix_spawn_file_actions_init(&actions_);
    sigset_t none;
    sigset_t all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP |
                                                 POSIX_SPAWN_SETSIGMASK |
                                                 POSIX_SPAWN_SETSIGDEF);
    const char* read = input.empty() ? "/dev/null" : input.c_str();
    ::posix_spawn_file_actions_addopen(&actions_, 0, read, O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, output, 1);
    ::posix_spawn_file_actions_adddup2(&actions_, errors, 2);
  }
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  pid_t spawn(const std::vector<std::string>& words, const CommandOptions& options) {
    std::vector<std::string> arguments = words;
    std::vector<std::string> environment = merged_environment(options);
    pid_t pid = 0;
    const int problem =
        ::posix_spawnp(&pid, words.front().c_str(), &actions_, &attributes_,
                       pointers(arguments).data(), pointers(environment).data());
    if (!limits_reached(problem).empty()) {
      throw refused("command", "process for " + words.front(), problem);
    }
    if (problem != 0) {
      fail_temporary("command", "{} cannot be run: {}; install it, or put it into PATH",
                     words.front(), std::strerror(problem));
    }
    return pid;
  }

 private:
  posix_spawnattr_t attributes_{};
  posix_spawn_file_actions_t actions_{};
};

class RunningCommand {
 public:
  RunningCommand(const std::vector<std::string>& words, const CommandOptions& options)
      : options_(options) {
    const int output = options.shares_output ? STDOUT_FILENO : output_.write.get();
    const int errors = options.shares_output ? STDERR_FILENO : errors_.write.get();
    pid_ = SpawnSettings(options.input, output, errors).spawn(words, options);
    output_.write.reset();
    errors_.write.reset();
  }

  CommandResult finish() {
    double ended_at = -1;
    while (true) {
      const double now = watch_.seconds();
      if (ended_at < 0 && reap()) ended_at = now;
      if (ended_at >= 0 && (!open() || now > ended_at + kLastWords)) break;
      if (ended_at < 0 && !result_.timed_out && now > options_.deadline_seconds) {
        result_.timed_out = true;
        ::kill(-pid_, SIGKILL);
      }
      if (options_.look && ended_at < 0) {
        if (const int signal = options_.look(); signal != 0) ::kill(-pid_, signal);
      }
      read_streams(ended_at < 0 ? 20 : 5);
    }
    result_.seconds = watch_.seconds();
    return std::move(result_);
  }

 private:
  bool open() const { return output_.read.is_open() || errors_.read.is_open(); }

  bool reap() {
    int status = 0;
    const pid_t done = ::waitpid(pid_, &status, WNOHANG);
    if (done == 0 || (done < 0 && errno == EINTR)) return false;
    // If SIGCHLD is ignored the kernel has dropped the status.
    result_.exit_code = done < 0              ? 1
                        : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                              : WEXITSTATUS(status);
    return true;
  }

  void read_streams(int milliseconds) {
    std::array<pollfd, 2> waits{
        {{output_.read.get(), POLLIN, 0}, {errors_.read.get(), POLLIN, 0}}};
    if (::poll(waits.data(), waits.size(), milliseconds) <= 0) return;
    if (waits[0].revents != 0) take(output_.read, result_.output);
    if (waits[1].revents != 0) take(errors_.read, result_.errors);
  }

  void take(Descriptor& from, std::string& text) {
    std::array<char, 16384> buffer{};
    const ssize_t count = ::read(from.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) return;
    if (count <= 0) {
      from.reset();
      return;
    }
    const auto got = static_cast<size_t>(count);
    const size_t room =
        options_.output_bytes - std::min(options_.output_bytes, text.size());
    text.append(buffer.data(), std::min(got, room));
    result_.cut_short |= got > room;
  }

  const CommandOptions& options_;
  system::Stopwatch watch_;
  Pipe output_ = make_pipe("command");
  Pipe errors_ = make_pipe("command");
  pid_t pid_ = 0;
  CommandResult result_;
};

}  // namespace

CommandResult run_command(const std::vector<std::string>& words,
                          const CommandOptions& options) {
  LH_CHECK(!words.empty() && !words.front().empty(), "command", "no program is named");
  return RunningCommand(words, options).finish();
}

bool has_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  const auto is_in = [&](std::string_view dir) {
    const fs::path program = fs::path(dir.empty() ? "." : dir) / name;
    return is_seen_file(program) && ::access(program.c_str(), X_OK) == 0;
  };
  return std::ranges::any_of(split(path == nullptr ? "/usr/bin:/bin" : path, ':'), is_in);
}

void require_program(const std::string& name, const std::string& area,
                     const std::string& advice) {
  if (has_program(name)) return;
  fail_input(area, "there is no {} in PATH; {}", name, advice);
}

}  // namespace longhaul::cluster
