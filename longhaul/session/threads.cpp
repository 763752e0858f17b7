#include "longhaul/session/threads.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/system/cpus.h"
#include "longhaul/system/run_on_threads.h"

namespace longhaul::session {
namespace {

/// The largest value that run.threads may have.
constexpr int64_t kMostThreads = 4096;

/// Returns the first number of "8" or "8,2" (a list: one per level of nesting). A number
/// that 64 bits do not hold becomes the largest that they hold.
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
      fail_config("config",
                  "OMP_NUM_THREADS={}: a rank has at most {} threads; "
                  "set run.threads, or correct the variable",
                  omp_num_threads, kMostThreads);
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

std::string set_threads(int64_t wanted, comm::Communicator& node) {
  const std::string mine = system::CpuAllowance::of_this_process().to_text();
  std::vector<system::CpuAllowance> ranks;
  for (const std::string& text : node.gather_strings(mine)) {
    ranks.push_back(system::CpuAllowance::from_text(text));
  }
  const ThreadChoice choice =
      choose_threads(wanted, std::getenv("OMP_NUM_THREADS"),
                     system::share_of_cpus(ranks, static_cast<size_t>(node.rank())));
  // OpenMP would end the process where the system refuses a thread; this throws instead.
  system::run_on_threads(choice.threads, [](int) {});
  at::set_num_threads(choice.threads);
  if (choice.threads == 1) return choice.line;
  return choice.line + "; " +
         describe_waiting(std::getenv("OMP_WAIT_POLICY"), std::getenv("GOMP_SPINCOUNT"));
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

}  // namespace longhaul::session
