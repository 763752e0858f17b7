#include "longhaul/base/refused.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

#include "longhaul/base/control_groups.h"
#include "longhaul/base/text.h"

namespace longhaul {
namespace {

class Limits {
 public:
  explicit Limits(const fs::path& root) : root_(root) {}

  /// Adds a limit of the shell; `shell` is what a shell calls it.
  void of_shell(int resource, const char* shell, bool bytes) {
    rlimit limit{};
    if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return;
    if (limit.rlim_cur == RLIM_INFINITY) return;
    add(shell, bytes ? human_bytes(limit.rlim_cur) : std::to_string(limit.rlim_cur));
  }
  /// Adds the smallest limit in the control groups around this process.
  void of_groups(const char* controller, std::initializer_list<const char*> files,
                 bool bytes) {
    if (const auto least = lowest_limit(control_groups(controller, root_), files)) {
      add(least->file.string(),
          bytes ? human_bytes(least->number) : std::to_string(least->number));
    }
  }
  void of_kernel(const char* file) {
    if (const auto limit = number_behind(root_ / file)) {
      add((root_ / file).string(), std::to_string(*limit));
    }
  }
  /// Adds the limit of mappings only if this process has nearly reached it, which is
  /// rare.
  void of_mappings() {
    const auto limit = number_behind(root_ / "proc/sys/vm/max_map_count");
    std::ifstream maps(root_ / "proc/self/maps");
    int64_t lines = 0;
    for (std::string line; std::getline(maps, line);) ++lines;
    if (limit && lines + lines / 8 >= *limit) {
      add("/proc/sys/vm/max_map_count",
          fmt::format("{}, of which {} are used", *limit, lines));
    }
  }
  std::string text() const { return fmt::format("{}", fmt::join(found_, ", ")); }

 private:
  void add(const std::string& name, const std::string& value) {
    found_.push_back(fmt::format("{} is {}", name, value));
  }

  fs::path root_;
  std::vector<std::string> found_;
};

}  // namespace

std::string limits_reached(int error, const fs::path& root) {
  Limits limits(root);
  if (error == EMFILE) limits.of_shell(RLIMIT_NOFILE, "ulimit -n", false);
  if (error == EFBIG) limits.of_shell(RLIMIT_FSIZE, "ulimit -f", true);
  if (error == ENFILE) limits.of_kernel("proc/sys/fs/file-max");
  if (error == EAGAIN) {
    limits.of_shell(RLIMIT_NPROC, "ulimit -u", false);
    limits.of_groups("pids", {"pids.max"}, false);
    limits.of_kernel("proc/sys/kernel/threads-max");
    limits.of_kernel("proc/sys/kernel/pid_max");
  }
  // A thread needs memory for its stack as well, and says EAGAIN if there is none.
  if (error == ENOMEM || error == EAGAIN) {
    limits.of_shell(RLIMIT_AS, "ulimit -v", true);
    limits.of_shell(RLIMIT_DATA, "ulimit -d", true);
    limits.of_groups("memory", kMemoryLimits, true);
    limits.of_mappings();
  }
  return limits.text();
}

std::string warning_of_limits() {
  Limits limits("/");
  limits.of_shell(RLIMIT_CPU, "ulimit -t (seconds)", false);
  limits.of_shell(RLIMIT_FSIZE, "ulimit -f", true);
  limits.of_shell(RLIMIT_DATA, "ulimit -d", true);
  limits.of_shell(RLIMIT_AS, "ulimit -v", true);
  const std::string text = limits.text();
  if (text.empty()) return {};
  return text +
         ": a process of this run ends or fails where it reaches that; raise it "
         "where the run needs more";
}

TemporaryError refused(std::string area, std::string_view what, int error,
                       std::string_view advice) {
  const std::string limits = limits_reached(error);
  return {
      std::move(area),
      fmt::format("the system gives this process no {}: {}{}{}; {}, then run the same "
                  "command again",
                  what, std::strerror(error),
                  limits.empty() ? "" : "; the limits are: ", limits,
                  advice.empty() ? "raise the limit that is reached, or end other "
                                   "programs"
                                 : advice)};
}

void make_setting_directory(std::string_view setting, const fs::path& dir) {
  try {
    make_directories_durable(dir);
  } catch (const InputError& problem) {
    fail_input(problem.area(), "{}: {}", setting, problem.message());
  } catch (const TemporaryError& problem) {
    fail_temporary(problem.area(), "{}: {}", setting, problem.message());
  }
}

}  // namespace longhaul
