#include "longhaul/data/store/build/build_peers.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/system/owner_lock.h"

namespace longhaul::data {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

BuildPeers::BuildPeers(const BuildDirectory& directory, const BuildOptions& options)
    : directory_(directory), options_(options) {
  for (int process = 0; process < options.processes; ++process) {
    const auto state = system::OwnerLock::look(directory.lock(process));
    if (state && !state->alive) earlier_[process] = state->holder.token;
  }
}

void BuildPeers::check_owner(int process, double seconds, size_t done, size_t all) const {
  const auto fail = [&](const std::string& what) {
    fail_temporary("data",
                   "process {} of {} {}; {} of {} are done and kept: start the same "
                   "command again, and it goes on from there",
                   process, options_.processes, what, done, all);
  };
  const auto state = system::OwnerLock::look(directory_.lock(process));
  const auto before = earlier_.find(process);
  const bool new_one =
      state && (before == earlier_.end() || before->second != state->holder.token);
  if (!new_one) {
    if (seconds > options_.start_seconds) {
      fail(fmt::format("has not started within {}",
                       human_duration(options_.start_seconds)));
    }
    return;
  }
  if (!state->alive) {
    fail(
        fmt::format("(host {}, process {}) ended before its work was done ({}): its own "
                    "message says why",
                    state->holder.host, state->holder.process, state->reason));
  }
}

void BuildPeers::wait(const std::vector<fs::path>& files, const std::vector<int>& owner,
                      const std::string& what) {
  const Clock::time_point start = Clock::now();
  Clock::time_point last_change = start;
  std::vector<bool> there(files.size());
  size_t done = 0;
  auto pause = std::chrono::milliseconds(20);
  bool said = false;
  while (true) {
    const size_t before = done;
    // A process may end between the two checks, so its files are checked before its lock.
    std::vector<int> missing;
    std::vector<bool> alive_checked(static_cast<size_t>(options_.processes));
    for (size_t i = 0; i < files.size(); ++i) {
      if (there[i]) continue;
      there[i] = is_seen(files[i]);
      if (there[i]) {
        ++done;
      } else if (!alive_checked[static_cast<size_t>(owner[i])]) {
        alive_checked[static_cast<size_t>(owner[i])] = true;
        missing.push_back(static_cast<int>(i));
      }
    }
    if (done == files.size()) return;
    if (done != before) last_change = Clock::now();
    for (const int i : missing) {
      try {
        check_owner(owner[static_cast<size_t>(i)], seconds_since(start), done,
                    files.size());
      } catch (const TemporaryError&) {
        // The process may have written its last file between the two checks.
        if (!fs::exists(files[static_cast<size_t>(i)])) throw;
      }
    }
    if (seconds_since(last_change) > options_.idle_seconds) {
      fail_temporary(
          "data",
          "waited {} for {}: {} of {} are there, and process {} is alive but finishes "
          "nothing; start the same command again, and it goes on from there",
          human_duration(options_.idle_seconds), what, done, files.size(),
          owner[static_cast<size_t>(missing.front())]);
    }
    if (options_.note && !said && seconds_since(start) > 2.0) {
      said = true;
      options_.note(
          fmt::format("waiting for {}: {} of {} are there", what, done, files.size()));
    }
    if (options_.stop && options_.stop()) {
      throw TemporaryError("data",
                           "stopped while waiting; the same command goes on from there");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(1000));
  }
}

}  // namespace longhaul::data
