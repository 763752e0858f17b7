#include "longhaul/doctor/links.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "longhaul/base/counted.h"
#include "longhaul/base/error.h"
#include "longhaul/base/random.h"
#include "longhaul/base/text.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::doctor {
namespace {

using cluster::HealthCheck;
using cluster::HealthResult;
using Kind = comm::Transfer::Kind;

constexpr int kRoundTrips = 10;
constexpr size_t kSharedBytes = size_t{1} << 20;
/// Each node looks at so many others' files: enough to meet a file server's every copy.
constexpr int kNeighbours = 16;

void transfer(comm::Communicator& group, Kind kind, int peer, double& value) {
  group.send_recv({{kind, peer, {&value, 1, DType::F64}}})->wait();
}

struct Skew {
  double offset = 0.0;  ///< the other clock is ahead by this
  double bound = 0.0;   ///< give or take
};

/// On the first node: the clock of `peer` against the own one.
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

/// A file that only `writer` can have made, and only for this version.
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

/// "" once the file of another node is there whole, else what is wrong when the time is
/// over. An old version may still be there; a part of one never.
std::string look(const fs::path& folder, int writer, int version, uint64_t nonce,
                 double seconds) {
  const std::string wanted = content(writer, version, nonce);
  const std::string before = version > 0 ? content(writer, version - 1, nonce) : "";
  std::string problem;
  for (const Stopwatch watch; watch.seconds() < seconds;) {
    try {
      const std::string found = read_text(file_of(folder, writer), 2 * kSharedBytes);
      if (found == wanted) return {};
      problem = "still sees what was there before";
      if (found != before) {
        return fmt::format("sees a part of a file ({} of {} bytes) after its rename",
                           found.size(), wanted.size());
      }
    } catch (const Error&) {
      problem = "does not see it";
      if (version > 0) problem = "sees none while one is renamed over it";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return problem;
}

/// One node's part of the test of a directory: "" or what is wrong.
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
        problem = fmt::format("{} what {} has renamed to {}", problem,
                              leaders.names[static_cast<size_t>(writer)],
                              file_of(folder, writer).string());
      }
    }
    group.barrier_wait();
  }
  return problem;
}

HealthCheck judged(const NodeLeaders& leaders, std::string name,
                   const std::string& problem) {
  HealthCheck check;
  check.name = std::move(name);
  const std::vector<std::string> problems = leaders.group.gather_strings(problem);
  for (size_t node = 0; node < problems.size(); ++node) {
    if (problems[node].empty()) continue;
    check.result = HealthResult::Failed;
    check.text += fmt::format("{}{} {}", check.text.empty() ? "" : "; ",
                              leaders.names[node], problems[node]);
  }
  return check;
}

}  // namespace

HealthCheck check_skew(const NodeLeaders& leaders, const DoctorOptions& options) {
  comm::Communicator& group = leaders.group;
  std::vector<double> figures(2 * static_cast<size_t>(group.size()), 0.0);
  for (int peer = 1; peer < group.size(); ++peer) {
    if (group.rank() == 0) {
      const Skew skew = measure_skew(group, peer, options.clock);
      figures[2 * static_cast<size_t>(peer)] = skew.offset;
      figures[2 * static_cast<size_t>(peer) + 1] = skew.bound;
    } else if (group.rank() == peer) {
      for (int i = 0; i < kRoundTrips; ++i) {
        double value = 0.0;
        transfer(group, Kind::Recv, 0, value);
        value = options.clock();
        transfer(group, Kind::Send, 0, value);
      }
    }
  }
  group.broadcast({figures.data(), static_cast<int64_t>(figures.size()), DType::F64}, 0)
      ->wait();
  HealthCheck check;
  check.name = "clocks";
  double worst = 0.0;
  double bound = 0.0;
  for (size_t node = 1; node < leaders.names.size(); ++node) {
    const double offset = figures[2 * node];
    const double give = figures[2 * node + 1];
    if (std::abs(offset) >= std::abs(worst)) {
      worst = offset;
      bound = give;
    }
    if (std::abs(offset) - give <= options.max_skew_seconds) continue;
    check.result = HealthResult::Failed;
    check.text += fmt::format("{}{} is {:.1f} ms {} {}", check.text.empty() ? "" : "; ",
                              leaders.names[node], 1000.0 * std::abs(offset),
                              offset > 0 ? "ahead of" : "behind", leaders.names[0]);
  }
  check.values = {{"worst_ms", 1000.0 * worst}, {"bound_ms", 1000.0 * bound}};
  if (check.result == HealthResult::Failed) {
    check.text += "; look at the nodes' time service (chronyd)";
  } else {
    check.text = fmt::format("within {:.3f} ms of {}'s (give or take {:.3f} ms)",
                             1000.0 * std::abs(worst), leaders.names[0], 1000.0 * bound);
  }
  return check;
}

HealthCheck check_shared(const NodeLeaders& leaders, const fs::path& directory,
                         const DoctorOptions& options) {
  comm::Communicator& group = leaders.group;
  const Stopwatch watch;
  const auto mine = static_cast<uint64_t>(1e6 * unix_time()) ^ uint64_t(::getpid());
  const uint64_t nonce = std::stoull(group.broadcast_string(std::to_string(mine), 0));
  const fs::path folder = directory / fmt::format(".longhaul_doctor_{:016x}", nonce);
  std::string problem;
  if (group.rank() == 0) {
    std::error_code wrong;
    if (!fs::create_directory(folder, wrong)) {
      problem = fmt::format("cannot make a directory in {}: {}", directory.string(),
                            wrong.message());
    }
  }
  HealthCheck check = judged(leaders, "shared " + directory.string(), problem);
  if (check.result == HealthResult::Failed) return check;
  const std::string text =
      try_shared(leaders, folder, nonce, options.quick ? 3.0 : options.visible_seconds);
  check = judged(leaders, "shared " + directory.string(), text);
  std::error_code ignored;
  if (group.rank() == 0) fs::remove_all(folder, ignored);
  if (check.result == HealthResult::Failed) {
    check.text += fmt::format(
        "; {} must be one directory that all nodes share, mounted "
        "so that renames are seen at once",
        directory.string());
  } else {
    check.text = fmt::format(
        "renames and synced bytes of each seen whole by the others "
        "({:.0f} ms)",
        1000.0 * watch.seconds());
  }
  return check;
}

HealthCheck check_all_reduce(comm::Communicator& group, const std::string& name,
                             bool quick) {
  const int64_t count = (int64_t{quick ? 4 : 64} << 20) / int64_t{sizeof(float)};
  const int size = group.size();
  // Ranks 1 .. n in the places of a known recipe: sums that fp32 holds exactly.
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
    const Stopwatch watch;
    group.all_reduce_wait({values.data(), count, DType::F32}, comm::ReduceOp::Sum);
    best = std::min(best, watch.seconds());
    for (int64_t i = 0; i < count; ++i) {
      if (values[static_cast<size_t>(i)] != static_cast<float>(sum) * factor(i)) ++wrong;
    }
  }
  HealthCheck check;
  check.name = name;
  const double bytes = static_cast<double>(count) * sizeof(float);
  const double rate = 2.0 * (size - 1) / size * bytes / best;
  check.values = {
      {"ranks", size}, {"seconds", best}, {"bytes", bytes}, {"bytes_per_second", rate}};
  check.text =
      fmt::format("all_reduce of {} over {} in {:.1f} ms: {:.2f} GB/s",
                  human_bytes(bytes), counted(size, "rank"), 1000.0 * best, 1e-9 * rate);
  if (wrong > 0) {
    check.result = HealthResult::Failed;
    check.text = fmt::format("all_reduce gave {} wrong sums of {}; do not train here",
                             wrong, count);
  }
  return check;
}

}  // namespace longhaul::doctor
