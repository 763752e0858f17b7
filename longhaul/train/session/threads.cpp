#include "longhaul/train/session/threads.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"

namespace longhaul::train {
namespace {

/// The most that run.threads may say.
constexpr int64_t kMostThreads = 4096;

/// Returns the first number of "8" or "8,2" (a list is for nested regions). A number that
/// 64 bits do not hold becomes the largest that they hold.
std::optional<int64_t> first_number(const char* text) {
  std::string_view rest = text == nullptr ? "" : text;
  const std::string_view digits = rest.substr(0, rest.find_first_not_of("0123456789"));
  rest.remove_prefix(digits.size());
  if (digits.empty() || !(rest.empty() || rest.starts_with(','))) return std::nullopt;
  const int64_t number =
      whole_number<int64_t>(digits).value_or(std::numeric_limits<int64_t>::max());
  return number > 0 ? std::optional(number) : std::nullopt;
}

}  // namespace

ThreadChoice choose_threads(int64_t setting, const char* omp_num_threads, int share) {
  const auto variable = first_number(omp_num_threads);
  ThreadChoice choice;
  std::string source = "its share of the CPUs of the job on this machine";
  choice.threads = share;
  if (setting > 0) {
    choice.threads = static_cast<int>(setting);
    source = "run.threads";
    if (variable && *variable != choice.threads) {
      source += fmt::format(", over OMP_NUM_THREADS={}", omp_num_threads);
    }
  } else if (variable) {
    if (*variable > kMostThreads) {
      throw ConfigError("config",
                        fmt::format("OMP_NUM_THREADS={}: a rank has at most {} threads; "
                                    "set run.threads, or correct the variable",
                                    omp_num_threads, kMostThreads));
    }
    choice.threads = static_cast<int>(*variable);
    source = "OMP_NUM_THREADS";
  }
  choice.line = fmt::format("{} thread{} per rank, from {}", choice.threads,
                            choice.threads == 1 ? "" : "s", source);
  if (choice.threads > share) {
    choice.line += fmt::format("; its share of the job's CPUs here is {}", share);
  }
  return choice;
}

std::string describe_waiting(const char* wait_policy, const char* spin_count) {
  if (spin_count != nullptr) {
    return fmt::format("threads that wait spin {} rounds, then sleep (GOMP_SPINCOUNT)",
                       spin_count);
  }
  if (wait_policy != nullptr) {
    return fmt::format("threads wait as OMP_WAIT_POLICY={} says", wait_policy);
  }
  return "threads wait as OpenMP does by default: they spin for milliseconds";
}

}  // namespace longhaul::train
