#include "longhaul/cluster/process/launcher_noise.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace longhaul::cluster {
namespace {

// Phrases of Open MPI 4.1 and 5.
constexpr std::array<std::string_view, 6> kOfBanners = {
    "mpirun noticed that process rank",
    "mpirun has exited due to process rank",
    "mpirun detected that one or more processes exited with non-zero status",
    "terminated normally, but",
    "MPI_ABORT was invoked on rank",
    "This will cause Open MPI to kill all MPI processes"};
/// The last phrase comes from srun when its child, which agents' steps do without, is
/// gone.
constexpr std::array<std::string_view, 3> kOfLines = {
    "sent help message help-mpi-api.txt / mpi-abort", "orte_base_help_aggregate",
    "srun: error: write(shepherd): Broken pipe"};
/// More lines than any banner has.
constexpr size_t kLongestBanner = 40;

bool is_dashes(const std::string& line) {
  return line.size() >= 40 && line.find_first_not_of('-') == std::string::npos;
}

template <size_t N>
bool holds_any(const std::string& line, const std::array<std::string_view, N>& phrases) {
  return std::ranges::any_of(phrases, [&](std::string_view phrase) {
    return line.find(phrase) != std::string::npos;
  });
}

}  // namespace

std::vector<std::string> LauncherNoise::pass(const std::string& line) {
  // Ranks write between the lines of a banner.
  if (line.find("longhaul: ") != std::string::npos) return {line};
  if (banner_.empty()) {
    if (is_dashes(line)) {
      banner_.push_back(line);
      return {};
    }
    if (holds_any(line, kOfLines)) return {};
    return {line};
  }
  banner_.push_back(line);
  if (!is_dashes(line) && banner_.size() < kLongestBanner) return {};
  std::vector<std::string> whole = std::exchange(banner_, {});
  const bool noise = std::ranges::any_of(
      whole, [](const std::string& one) { return holds_any(one, kOfBanners); });
  if (noise) return {};
  return whole;
}

std::vector<std::string> LauncherNoise::rest() { return std::exchange(banner_, {}); }

}  // namespace longhaul::cluster
