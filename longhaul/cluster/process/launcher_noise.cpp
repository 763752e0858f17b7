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
/// The last phrase comes from srun when its child process is gone. This program kills
/// that child for the steps of agents (let_step_outlive_srun).
constexpr std::array<std::string_view, 3> kOfLines = {
    "sent help message help-mpi-api.txt / mpi-abort", "orte_base_help_aggregate",
    "srun: error: write(shepherd): Broken pipe"};
/// More lines than any banner has.
constexpr size_t kLongestBanner = 40;
constexpr size_t kLongestCause = 300;

/// What the launcher says of a cause, and what a person is told.
struct KnownCause {
  std::string_view phrase;
  std::string_view told;
};
constexpr std::array<KnownCause, 8> kKnownCauses = {{
    {"unable to find network interfaces",
     "no network interface with an IPv4 address is up, and mpirun wants one even for one "
     "machine; ip link set lo up, and ip addr add 127.0.0.1/8 dev lo"},
    {"The PMIx server's listener thread failed to start",
     "PMIx cannot listen on the loopback; ip link set lo up, and see that it has "
     "127.0.0.1"},
    {"There are not enough slots available",
     "there are more ranks than mpirun sees cores; start fewer ranks, or give "
     "--mpirun=--oversubscribe"},
    {"attempt to run as root",
     "mpirun does not run as root; start as another user, or set "
     "OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"},
    {"No user exists for uid",
     "ssh needs an entry in /etc/passwd for this user; add one"},
    {"pmix_home_directory",
     "mpirun crashed because there is no home directory; set HOME to a directory of the "
     "user"},
    {"unable to reliably start one or more daemons",
     "mpirun's daemon did not start on every host; try `ssh HOST true`, and install the "
     "same Open MPI in the same directory on each host"},
    {"No space left on device",
     "a directory of mpirun has no room; make room, or set TMPDIR to another directory"},
}};

/// Returns what follows a word at the start of a line ("Directory: /x"), or an empty
/// text.
std::string value_of(const std::string& line, std::string_view word) {
  const size_t at = line.find(word);
  if (at == std::string::npos || line.find_first_not_of(' ') != at) return {};
  const size_t value = line.find_first_not_of(' ', at + word.size());
  return value == std::string::npos ? std::string() : line.substr(value);
}

bool is_dashes(const std::string& line) {
  return line.size() >= 40 && line.find_first_not_of('-') == std::string::npos;
}

template <size_t N>
bool holds_any(const std::string& line, const std::array<std::string_view, N>& phrases) {
  return std::ranges::any_of(phrases, [&](std::string_view phrase) {
    return line.find(phrase) != std::string::npos;
  });
}

/// Returns the text of a banner in one line.
std::string words_of_banner(const std::vector<std::string>& lines) {
  std::string words;
  for (const std::string& line : lines) {
    const size_t begin = line.find_first_not_of(" \t");
    if (is_dashes(line) || begin == std::string::npos) continue;
    words += (words.empty() ? "" : " ") + line.substr(begin);
  }
  if (words.size() > kLongestCause) words.resize(kLongestCause);
  return words;
}

}  // namespace

std::vector<std::string> LauncherNoise::pass(const std::string& line) {
  // Ranks may write between the lines of the launcher's banner.
  if (line.find("longhaul: ") != std::string::npos) return {line};
  look_at(line);
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
  if (first_banner_.empty()) first_banner_ = words_of_banner(whole);
  return whole;
}

void LauncherNoise::look_at(const std::string& line) {
  if (!known_.empty()) return;
  if (std::string made = value_of(line, "Directory:"); !made.empty()) {
    directory_ = std::move(made);
  } else if (const std::string why = value_of(line, "Error:");
             !why.empty() && !directory_.empty()) {
    known_ = "mpirun cannot make " + directory_ + ": " + why +
             "; set TMPDIR to a directory that can be written";
  }
  for (const auto& [phrase, told] : kKnownCauses) {
    if (known_.empty() && line.find(phrase) != std::string::npos) known_ = told;
  }
}

std::string LauncherNoise::cause() const {
  return known_.empty() ? first_banner_ : known_;
}

std::vector<std::string> LauncherNoise::rest() { return std::exchange(banner_, {}); }

}  // namespace longhaul::cluster
