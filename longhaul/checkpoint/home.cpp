#include "longhaul/checkpoint/home.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/json.h"
#include "longhaul/base/process.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/comm/agree.h"
#include "longhaul/run/files.h"

namespace longhaul::checkpoint {
namespace {

using Look = std::function<std::optional<std::string>()>;

constexpr const char* kMount =
    "every node must see the same directory at this path: mount it on the nodes that do "
    "not, and start the same command again";

std::string this_rank(const comm::Communicator& world) {
  return fmt::format("rank {} of {} on {}", world.rank(), world.size(), host_name());
}

/// Returns what `look` sees; an error of `look` also names this rank.
template <typename See>
auto named(const comm::Communicator& world, const See& look) {
  try {
    return look();
  } catch (const Error& error) {
    Failure{error.kind(), error.area(),
            fmt::format("{}: {}", this_rank(world), error.message())}
        .raise();
  }
}

/// Looks again for `patience` seconds while nothing is seen.
std::optional<std::string> look_patiently(const Look& look, double patience) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(patience);
  auto pause = std::chrono::milliseconds(1);
  while (true) {
    auto seen = look();
    if (seen || Clock::now() >= end) return seen;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(500));
  }
}

void prove(const fs::path& file, const std::string& run, double patience,
           const Look& look, comm::Communicator& world) {
  const std::string host = world.broadcast_string(host_name(), 0);
  comm::on_all_ranks(world, [&] {
    const auto seen = named(world, [&] { return look_patiently(look, patience); });
    if (seen == run) return;
    const std::string found =
        seen ? fmt::format("finds another run's {} ({})", file.string(), *seen)
             : fmt::format("does not find {}", file.string());
    fail_temporary("run directory", "{} {}, where rank 0 on {} finds this run's ({}); {}",
                   this_rank(world), found, host, run, kMount);
  });
}

/// Returns whether this rank's machine sees the checkpoints of the run in `dir`.
bool sees_checkpoints(const fs::path& dir, const std::string& run) {
  if (const auto owner = run::read_checkpoints_owner(dir)) return *owner == run;
  return has_committed(dir);
}

}  // namespace

std::optional<std::string> find_run(const fs::path& run_dir, comm::Communicator& world) {
  const Json told = Json::parse(comm::on_rank_zero(world, [&] {
    return json_text(Json{{"run", run::read_run_identity(run_dir).value_or("")},
                          {"host", host_name()}});
  }));
  auto run = told.at("run").get<std::string>();
  if (!run.empty()) return run;
  comm::on_all_ranks(world, [&] {
    const auto seen = named(world, [&] { return run::read_run_identity(run_dir); });
    if (!seen) return;
    fail_temporary("run directory",
                   "rank 0 of {} on {} does not find {}, where {} finds it (run {}); {}",
                   world.size(), told.at("host").get<std::string>(),
                   (run_dir / run::kRunPastFile).string(), this_rank(world), *seen,
                   kMount);
  });
  return std::nullopt;
}

void prove_run_dir(const fs::path& run_dir, const std::string& run, double patience,
                   comm::Communicator& world) {
  prove(
      run_dir / run::kRunPastFile, run, patience,
      [&] { return run::read_run_identity(run_dir); }, world);
}

void prove_checkpoints_dir(const fs::path& dir, const std::string& run, double patience,
                           comm::Communicator& world) {
  prove(
      dir / run::kCheckpointsOwnerFile, run, patience,
      [&] { return run::read_checkpoints_owner(dir); }, world);
}

void confirm_missing(const fs::path& dir, const std::string& run,
                     comm::Communicator& world) {
  const std::string host = world.broadcast_string(host_name(), 0);
  comm::on_all_ranks(world, [&] {
    const bool sees = named(world, [&] { return sees_checkpoints(dir, run); });
    if (world.rank() == 0 || !sees) return;
    fail_temporary("run directory",
                   "rank 0 of {} on {} does not find this run's checkpoints in {}, where "
                   "{} finds them; {}",
                   world.size(), host, dir.string(), this_rank(world), kMount);
  });
}

}  // namespace longhaul::checkpoint
