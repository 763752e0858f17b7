#include "longhaul/doctor/links.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/random.h"
#include "longhaul/base/text.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::doctor {
namespace {

using cluster::HealthCheck;
using Kind = comm::Transfer::Kind;

constexpr int kRoundTrips = 10;
constexpr size_t kSharedBytes = size_t{1} << 20;
/// Each node looks at the files of this many other nodes. If a file server keeps several
/// copies of its files, so many looks are enough to meet each of them.
constexpr int kNeighbours = 16;

void transfer(comm::Communicator& group, Kind kind, int peer, double& value) {
  group.send_recv({{kind, peer, {&value, 1, format::DType::F64}}})->wait();
}

struct Skew {
  double offset = 0.0;  ///< seconds by which the other clock is ahead
  double bound = 0.0;   ///< largest error of the offset
};

/// Measures, on the first node, the clock of `peer` against its own.
Skew measure_skew(comm::Communicator& group, int peer,
                  const std::function<double()>& clock) {
  Skew best{0.0, 1e9};
  for (int i = 0; i < kRoundTrips; ++i) {
    double answer = 0.0;
    const double sent = clock();
    transfer(group, Kind::Send, peer, answer);
    transfer(group, Kind::Recv, peer, answer);
    const double back = clock();
    const double bound = 0.5 * std::abs(back - sent);
    if (bound < best.bound) best = {answer - 0.5 * (sent + back), bound};
  }
  return best;
}

/// Returns the content of a file, different for each writer and version.
std::string content(int writer, int version, uint64_t nonce) {
  std::string text = fmt::format("node {} version {} nonce {}\n", writer, version, nonce);
  uint64_t counter = 0;
  while (text.size() < kSharedBytes) {
    const auto words =
        philox(nonce, counter++, static_cast<uint64_t>(writer * 2 + version));
    text.append(reinterpret_cast<const char*>(words.data()), 16);
  }
  return text;
}

fs::path file_of(const fs::path& folder, int node) {
  return folder / fmt::format("node_{}", node);
}

/// Waits until this node sees the whole file of another node. Returns "", or what is
/// wrong when the time is over. The old version may be seen for a while, but never a part
/// of a file.
std::string look(const fs::path& folder, int writer, int version, uint64_t nonce,
                 double seconds) {
  const std::string wanted = content(writer, version, nonce);
  const std::string before = version > 0 ? content(writer, version - 1, nonce) : "";
  std::string problem;
  for (const system::Stopwatch watch; watch.seconds() < seconds;) {
    try {
      const std::string found = read_text(file_of(folder, writer), 2 * kSharedBytes);
      if (found == wanted) return {};
      problem = "still sees the old file";
      if (found != before) {
        return fmt::format("sees a part of the file ({} of {} bytes) after its rename",
                           found.size(), wanted.size());
      }
    } catch (const Error&) {
      problem = "does not see the file";
      if (version > 0) problem = "sees no file while another is renamed over it";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return problem;
}

/// Runs one node's part of the test of a directory. Returns "" or what is wrong.
std::string try_shared(const NodeLeaders& leaders, const fs::path& folder, uint64_t nonce,
                       double seconds) {
  comm::Communicator& group = leaders.group;
  const int nodes = group.size();
  std::string problem;
  for (int version = 0; version < 2; ++version) {
    try {
      write_text_atomic(file_of(folder, group.rank()),
                        content(group.rank(), version, nonce));
    } catch (const Error& error) {
      if (problem.empty()) problem = error.what();
    }
    group.barrier_wait();
    for (int i = 1; i <= std::min(kNeighbours, nodes - 1) && problem.empty(); ++i) {
      const int writer = (group.rank() + i) % nodes;
      problem = look(folder, writer, version, nonce, seconds);
      if (!problem.empty()) {
        problem = fmt::format("{}: {} has renamed it to {}", problem,
                              leaders.names[static_cast<size_t>(writer)],
                              file_of(folder, writer).string());
      }
    }
    group.barrier_wait();
  }
  return problem;
}

/// Joins the problems of all nodes, each behind its node's name; "" if none has one.
/// Collective over the leaders.
std::string joined(const NodeLeaders& leaders, const std::string& problem) {
  std::string all;
  const std::vector<std::string> problems = leaders.group.gather_strings(problem);
  for (size_t node = 0; node < problems.size(); ++node) {
    if (problems[node].empty()) continue;
    all += fmt::format("{}{} {}", all.empty() ? "" : "; ", leaders.names[node],
                       problems[node]);
  }
  return all;
}

}  // namespace

HealthCheck check_skew(const NodeLeaders& leaders, const DoctorOptions& options) {
  comm::Communicator& group = leaders.group;
  // The offset of each node's clock from the first node's clock, and the bound of the
  // error, in seconds.
  std::vector<std::array<double, 2>> figures(static_cast<size_t>(group.size()));
  for (int peer = 1; peer < group.size(); ++peer) {
    if (group.rank() == 0) {
      const Skew skew = measure_skew(group, peer, options.clock);
      figures[static_cast<size_t>(peer)] = {skew.offset, skew.bound};
    } else if (group.rank() == peer) {
      for (int i = 0; i < kRoundTrips; ++i) {
        double value = 0.0;
        transfer(group, Kind::Recv, 0, value);
        value = options.clock();
        transfer(group, Kind::Send, 0, value);
      }
    }
  }
  group
      .broadcast(
          {figures.data(), 2 * static_cast<int64_t>(figures.size()), format::DType::F64},
          0)
      ->wait();
  std::string late;
  for (size_t node = 1; node < figures.size(); ++node) {
    const auto [offset, bound] = figures[node];
    if (std::abs(offset) - bound <= options.max_skew_seconds) continue;
    late += fmt::format("{} is {:.1f} ms {} {}; ", leaders.names[node],
                        1000.0 * std::abs(offset), offset > 0 ? "ahead of" : "behind",
                        leaders.names[0]);
  }
  const auto [worst, bound] = *std::ranges::max_element(
      figures, {}, [](const auto& one) { return std::abs(one[0]); });
  HealthCheck check;
  if (!late.empty()) {
    check = HealthCheck::failed(late + "look at the nodes' time service (chronyd)");
  } else {
    check.text = fmt::format("within {:.3f} ms of {}'s (give or take {:.3f} ms)",
                             1000.0 * std::abs(worst), leaders.names[0], 1000.0 * bound);
  }
  check.name = "clocks";
  check.values = {{"worst_ms", 1000.0 * worst}, {"bound_ms", 1000.0 * bound}};
  return check;
}

HealthCheck check_shared(const NodeLeaders& leaders, const fs::path& directory,
                         const DoctorOptions& options) {
  comm::Communicator& group = leaders.group;
  const system::Stopwatch watch;
  const auto mine = static_cast<uint64_t>(1e6 * unix_time()) ^ uint64_t(::getpid());
  const uint64_t nonce = std::stoull(group.broadcast_string(std::to_string(mine), 0));
  const fs::path folder = directory / fmt::format(".longhaul_doctor_{:016x}", nonce);
  std::string problem;
  std::error_code wrong;
  if (group.rank() == 0 && !fs::create_directory(folder, wrong)) {
    problem = fmt::format("cannot make a directory in {}: {}", directory.string(),
                          wrong.message());
  }
  std::string problems = joined(leaders, problem);
  if (problems.empty()) {
    problems = joined(leaders, try_shared(leaders, folder, nonce,
                                          options.quick ? 3.0 : options.visible_seconds));
    if (group.rank() == 0) fs::remove_all(folder, wrong);
    if (!problems.empty()) {
      problems += fmt::format(
          "; {} must be one directory that all nodes share, mounted so that renames are "
          "seen at once",
          directory.string());
    }
  }
  HealthCheck check;
  if (!problems.empty()) {
    check = HealthCheck::failed(problems);
  } else {
    check.text = fmt::format(
        "each node's renames and synced bytes are seen whole by the others ({:.0f} ms)",
        1000.0 * watch.seconds());
  }
  check.name = "shared " + directory.string();
  return check;
}

HealthCheck check_all_reduce(comm::Communicator& group, const std::string& name,
                             bool quick) {
  const int64_t count = (int64_t{quick ? 4 : 64} << 20) / int64_t{sizeof(float)};
  const int size = group.size();
  // Each element is a known number times the rank + 1, so fp32 holds the sums exactly.
  const auto factor = [](int64_t place) { return static_cast<float>(place % 7 + 1); };
  std::vector<float> values(static_cast<size_t>(count));
  const double sum = 0.5 * size * (size + 1.0);
  double best = 1e9;
  int64_t wrong = 0;
  for (int repeat = 0; repeat < (quick ? 2 : 4); ++repeat) {
    for (int64_t i = 0; i < count; ++i) {
      values[static_cast<size_t>(i)] = factor(i) * static_cast<float>(group.rank() + 1);
    }
    group.barrier_wait();
    const system::Stopwatch watch;
    group.all_reduce_wait({values.data(), count, format::DType::F32},
                          comm::ReduceOp::Sum);
    best = std::min(best, watch.seconds());
    for (int64_t i = 0; i < count; ++i) {
      if (values[static_cast<size_t>(i)] != static_cast<float>(sum) * factor(i)) ++wrong;
    }
  }
  const double bytes = static_cast<double>(count) * sizeof(float);
  const double rate = 2.0 * (size - 1) / size * bytes / best;
  HealthCheck check;
  check.text =
      fmt::format("all_reduce of {} over {} in {:.1f} ms: {:.2f} GB/s",
                  human_bytes(bytes), counted(size, "rank"), 1000.0 * best, 1e-9 * rate);
  if (wrong > 0) {
    check = HealthCheck::failed(fmt::format(
        "all_reduce gave {} wrong sums of {}; do not train here", wrong, count));
  }
  check.name = name;
  check.values = {
      {"ranks", size}, {"seconds", best}, {"bytes", bytes}, {"bytes_per_second", rate}};
  return check;
}

}  // namespace longhaul::doctor
