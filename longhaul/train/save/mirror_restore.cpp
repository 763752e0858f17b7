#include "longhaul/train/save/mirror_restore.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <thread>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/home.h"
#include "longhaul/checkpoint/mirror/mirror_listing.h"
#include "longhaul/checkpoint/mirror/mirror_reader.h"
#include "longhaul/checkpoint/mirror/mirror_store.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/objects/address.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_past.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/train/save/checkpoint_home.h"

namespace longhaul::train {
namespace {

constexpr std::string_view kRestorePhase = "load";

std::unique_ptr<checkpoint::MirrorStore> store_of(const RunConfig& config) {
  return checkpoint::open_mirror(objects::parse_address(*config.checkpoint.mirror));
}

/// Throws `error` again. An error of the store also says what it means for the start.
[[noreturn]] void raise_unreachable(const RunConfig& config, const Error& error) {
  const bool answered = error.kind() == ErrorKind::Input && error.area() != "objects";
  if (answered) throw InputError(error.area(), error.message());
  const ResumeFrom& asked = config.checkpoint.resume;
  if (asked.kind == ResumeFrom::Kind::Step) {
    Failure{error.kind(), "mirror",
            fmt::format("{} cannot be read, and {} has no checkpoint of step {}, which "
                        "checkpoint.resume names: {}. Start the same command again once "
                        "the store answers, or name another step",
                        *config.checkpoint.mirror, checkpoint_dir(config).string(),
                        asked.step, error.message())}
        .raise();
  }
  Failure{error.kind(), "mirror",
          fmt::format("{} cannot be read, and {} has no checkpoint: {}. The run does not "
                      "begin anew by itself: start the same command again once the store "
                      "answers, or set checkpoint.resume = \"never\"",
                      *config.checkpoint.mirror, checkpoint_dir(config).string(),
                      error.message())}
      .raise();
}

/// Returns whether this rank's directory of checkpoints lacks what checkpoint.resume asks
/// for, and a mirror may have it: the newest of the run's own checkpoints, or a step.
bool is_missing_here(const RunConfig& config) {
  const ResumeFrom& asked = config.checkpoint.resume;
  const fs::path dir = checkpoint_dir(config);
  if (asked.kind == ResumeFrom::Kind::Step) {
    checkpoint::refuse_dangling(dir);
    return !fs::exists(dir / run::step_directory_name(asked.step) / run::kManifestFile);
  }
  const bool asks_for_own =
      asked.kind == ResumeFrom::Kind::Latest ||
      (asked.kind == ResumeFrom::Kind::Path && begins_elsewhere(config));
  return asks_for_own && !checkpoint::has_committed(dir);
}

/// Throws because neither the directory of checkpoints nor the mirror has the step that
/// checkpoint.resume names. Called on rank 0 only.
[[noreturn]] void refuse_step(const RunConfig& config,
                              const std::vector<int64_t>& mirrored) {
  const fs::path dir = checkpoint_dir(config);
  std::vector<int64_t> here;
  for (const auto& entry : checkpoint::list_checkpoints(dir)) {
    if (entry.valid) here.push_back(entry.step);
  }
  fail_input("checkpoint",
             "checkpoint.resume = {}: neither {} nor {} has a whole checkpoint of "
             "that step; steps here: {}; in the mirror: {}",
             config.checkpoint.resume.step, dir.string(), *config.checkpoint.mirror,
             here.empty() ? "none" : fmt::format("{}", fmt::join(here, ", ")),
             mirrored.empty() ? "none" : fmt::format("{}", fmt::join(mirrored, ", ")));
}

/// What rank 0 takes from the mirror.
struct Found {
  std::string run;     ///< the run that saved the checkpoints
  std::string writer;  ///< MirrorOwner::name, where this run may go on from the mirror
  /// The steps of whole checkpoints that may be taken, the newest first. A checkpoint is
  /// read only when it is wanted.
  std::vector<int64_t> steps;
  bool marked = false;  ///< whether rank 0's directory of checkpoints is that run's
  std::vector<int64_t> others;  ///< where a step is asked for: the steps of the mirror
};

/// Looks for checkpoints that this run may take. Called on rank 0 only.
Found find_in_mirror(const RunConfig& config, const RunStart& start, RunLog& run,
                     checkpoint::MirrorStore& store) {
  Found found;
  const auto owner = checkpoint::read_mirror_owner(store);
  found.run = owner ? owner->run : start.run();
  const run::RunPast& record = start.past();
  const bool by_step = config.checkpoint.resume.kind == ResumeFrom::Kind::Step;
  const auto not_taken = [&](const std::string& why) {
    const std::string line =
        fmt::format("{} holds the checkpoints of another run ({}){}: they are not taken",
                    store.place(), found.run, why);
    if (by_step) throw InputError("checkpoint", line);
    run.log().warning(line);
    return found;
  };
  // A record that was made from events alone does not know the identity of its run.
  const bool has_saved = record.newest && !record.checkpoints.empty();
  const bool has_begun = has_saved || record.loads > 0 || record.has_given_up(found.run);
  if (owner && owner->run != record.run && has_begun) {
    return not_taken(
        fmt::format(", and this run ({}) has begun without them", record.run));
  }
  if (!owner && !has_begun) {
    // Somebody has deleted the file that says which run writes the mirror. The newest
    // whole checkpoint of the mirror also names its run.
    const checkpoint::MirrorListing listing(store);
    for (const int64_t step : listing.steps()) {
      const auto whole = listing.read(step);
      if (!whole) continue;
      if (!whole->manifest.run.empty()) found.run = whole->manifest.run;
      break;
    }
  }
  const fs::path dir = checkpoint_dir(config);
  const auto here = run::read_checkpoints_owner(dir);
  if (here && *here != found.run && checkpoint::has_committed(dir)) {
    return not_taken(fmt::format(" than {} ({})", dir.string(), *here));
  }
  found.marked = here == found.run;
  if (owner) found.writer = owner->name;
  const checkpoint::MirrorListing listing(store, found.run);
  std::vector<std::string> skipped;
  if (by_step) {
    const int64_t step = config.checkpoint.resume.step;
    if (listing.read(step, &skipped)) found.steps.push_back(step);
    for (const std::string& line : skipped) run.log().warning(line);
    for (const int64_t other : listing.steps()) {
      if (!listing.manifests(other).empty()) found.others.push_back(other);
    }
    return found;
  }
  for (const int64_t step : listing.steps()) {
    // An older step is rarely wanted, so for it the presence of a manifest is enough
    // here.
    const bool whole = found.steps.empty() ? listing.read(step, &skipped).has_value()
                                           : !listing.manifests(step).empty();
    if (whole) found.steps.push_back(step);
  }
  for (const std::string& line : skipped) run.log().warning(line);
  if (found.steps.empty() && !skipped.empty()) {
    fail_input("mirror", "none of its {} is whole: {}",
               counted(std::ssize(skipped), "checkpoint"), skipped.front());
  }
  if (found.steps.empty()) {
    run.log().info("{} has no checkpoint, and neither has {}", store.place(),
                   dir.string());
  }
  return found;
}

/// Returns whether checkpoint.resume asks for the newest checkpoint, and the newest that
/// the run has committed in the directory is missing there. Called on rank 0 only.
bool lacks_newest(const RunConfig& config, const RunStart& start) {
  const fs::path dir = checkpoint_dir(config);
  const auto newest = start.past().newest_in(dir);
  return newest && config.checkpoint.resume.kind == ResumeFrom::Kind::Latest &&
         !fs::exists(dir / run::step_directory_name(*newest) / run::kManifestFile);
}

/// Looks in the mirror for checkpoints that are newer than those in the directory, which
/// has lost its newest. Where the mirror has no newer one, or cannot be read, the run
/// goes on from the directory. Called on rank 0 only.
Found find_newer(const RunConfig& config, const RunStart& start, RunLog& run,
                 checkpoint::MirrorStore& store) {
  const fs::path dir = checkpoint_dir(config);
  const auto here = checkpoint::find_latest(dir);
  const std::string has = fmt::format(
      "this run had committed step {}, and the newest in {} is {}", *start.past().newest,
      dir.string(), here ? fmt::format("step {}", here->step) : "not whole");
  Found found;
  const auto failure =
      Failure::of([&] { found = find_in_mirror(config, start, run, store); });
  std::erase_if(found.steps, [&](int64_t step) {
    return failure || !found.marked || (here && step <= here->step);
  });
  const std::string mirror =
      failure               ? "cannot be read: " + failure->message
      : found.steps.empty() ? "has no newer one"
                            : fmt::format("has step {}, which is taken", found.steps[0]);
  run.log().warning("{}; {} {}", has, store.place(), mirror);
  return found;
}

/// Runs `work` on a thread of rank 0, since it may take longer than a collective may. All
/// ranks ask each other again and again whether it has ended. Throws on all ranks what
/// `work` throws. A signal to any rank calls `stop`. Collective.
void work_beside(comm::Communicator& world, const std::function<void()>& work,
                 const std::function<void()>& stop) {
  std::atomic<bool> ended = false;
  std::string reply;
  std::thread thread;
  if (world.rank() == 0) {
    thread = std::thread([&] {
      system::leave_signals_to_main_thread();
      reply = reply_of([&] { return work(), std::string(); });
      ended = true;
    });
  }
  try {
    comm::Polling polling(world.ledger(), kRestorePhase, {"mirror", "restore", 0, 0, {}});
    auto pause = std::chrono::milliseconds(5);
    for (uint64_t looks = 1;; ++looks) {
      std::array<int64_t, 2> told = {world.rank() == 0 && !ended ? 1 : 0,
                                     system::raised_signal().number != 0 ? 1 : 0};
      world.all_reduce_wait(told, comm::ReduceOp::Sum);
      if (told[0] == 0) break;
      if (told[1] > 0 && world.rank() == 0) stop();
      // The work needs no time limit: the store gives up a request that fails for long.
      polling.look(looks, world.rank() != 0);
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::milliseconds(500));
    }
  } catch (...) {
    if (world.rank() == 0) stop();
    if (thread.joinable()) thread.join();
    throw;
  }
  if (thread.joinable()) thread.join();
  comm::on_rank_zero(world, [&] { return open_reply(std::move(reply)); });
}

/// Fetches the newest step of `found` that is whole and undamaged, and calls `complete`
/// before the checkpoint counts. Called on rank 0 only, by a thread of its own.
checkpoint::MirrorStep fetch_best(const RunConfig& config, const Found& found,
                                  RunLog& run, checkpoint::MirrorStore& store,
                                  const std::function<void()>& complete) {
  const fs::path dir = checkpoint_dir(config);
  const checkpoint::MirrorListing listing(store, found.run);
  for (size_t i = 0; i < found.steps.size(); ++i) {
    const auto step = listing.read(found.steps[i]);
    if (!step) continue;
    run.log().info("fetching step {} from {}, {}", step->step, store.place(),
                   human_bytes(step->manifest.total_bytes()));
    try {
      checkpoint::fetch_checkpoint(
          store, *step, dir, [&](const std::string& line) { run.log().status(line); },
          complete);
      return *step;
    } catch (const InputError& error) {
      // A refusal of the store says nothing about the checkpoint.
      if (i + 1 == found.steps.size() || error.area() == "objects") throw;
      run.log().warning(
          "CHECKPOINT DAMAGED in the mirror: {}; going back to the one before it",
          error.message());
    }
  }
  fail_input("mirror",
             "{}: no checkpoint is whole any more; set "
             "checkpoint.resume = \"never\" to begin anew",
             store.place());
}

bool begins_with(const fs::path& file, const fs::path& head) {
  std::ifstream all(file, std::ios::binary);
  std::ifstream first(head, std::ios::binary);
  using Bytes = std::istreambuf_iterator<char>;
  return all &&
         std::mismatch(Bytes(first), Bytes(), Bytes(all), Bytes()).first == Bytes();
}

/// Puts the mirror's copy of one of the run's files before the text of the local file,
/// which a supervisor may have begun. Called on rank 0 only.
void fetch_history(checkpoint::MirrorStore& store, const std::string& name,
                   const fs::path& run_dir) {
  const fs::path file = run_dir / name;
  const fs::path fetched = run_dir / ("." + name + ".fetched");
  fs::remove(fetched);
  store.fetch("run/" + name, fetched);
  if (begins_with(file, fetched)) {  // an earlier start has done it
    fs::remove(fetched);
    return;
  }
  if (fs::exists(file) && fs::file_size(file) > 0) {
    std::ofstream end(fetched, std::ios::app | std::ios::binary);
    end << std::ifstream(file, std::ios::binary).rdbuf() << std::flush;
    if (!end)
      throw to_error(
          fs::filesystem_error("append to", fetched, {EIO, std::generic_category()}));
  }
  fs::rename(fetched, file);
  sync_directory(run_dir);
}

/// Waits until this machine sees the checkpoint that rank 0 has fetched. Collective.
void prove_fetched(const fs::path& dir, comm::Communicator& world, const std::string& run,
                   int64_t step) {
  checkpoint::prove_checkpoints_dir(dir, run, checkpoint::kNameSeconds, world);
  comm::on_all_ranks(world, [&] {
    const fs::path manifest = dir / run::step_directory_name(step) / run::kManifestFile;
    const system::Stopwatch watch;
    while (!fs::exists(manifest)) {
      if (watch.seconds() > checkpoint::kNameSeconds) {
        throw TemporaryError(
            "mirror", fmt::format("rank {} does not see {}, which rank 0 has fetched; "
                                  "every node must see the same directory",
                                  world.rank(), manifest.string()));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
}

}  // namespace

MirrorPast look_at_mirror(const RunConfig& config, comm::Communicator& world) {
  if (!config.checkpoint.mirror) return {};
  const Json told = Json::parse(comm::on_rank_zero(world, [&] {
    MirrorPast past;
    const fs::path dir = checkpoint_dir(config);
    const bool known = run::read_run_identity(config.run.dir).has_value();
    const bool looks = config.checkpoint.resume.kind != ResumeFrom::Kind::Never;
    const bool has_history = fs::exists(config.run.dir / run::kMetricsFile);
    bool missing = looks && (!known || !has_history);
    std::string of_run;
    // An error is passed over here: the load reports it, if the run goes on from the
    // directory.
    Failure::of([&] {
      if (const auto marker = run::read_checkpoints_marker(dir)) {
        past.attempt = marker->attempt;
        if (checkpoint::has_committed(dir)) of_run = marker->run;
      }
      missing = missing || (looks && is_missing_here(config));
    });
    if (missing) {
      try {
        const auto store = store_of(config);
        const auto owner = checkpoint::read_mirror_owner(*store);
        past.attempt = std::max({past.attempt, owner ? owner->attempt : 0,
                                 checkpoint::MirrorListing(*store).highest_attempt()});
        if (owner && (of_run.empty() || of_run == owner->run)) past.run = owner->run;
      } catch (const Error& error) {
        // Without its history the run would write another history over that of the
        // mirror.
        const bool was_here = past.attempt > 0 && !has_history;
        if (was_here || (!known && !checkpoint::has_committed(dir))) {
          raise_unreachable(config, error);
        }
      }
    }
    return json_text(Json{{"run", past.run}, {"attempt", past.attempt}});
  }));
  return {told.at("run").get<std::string>(), told.at("attempt").get<int>()};
}

void restore_history(const RunConfig& config, const MirrorPast& past,
                     const RunStart& start, comm::Communicator& world) {
  if (past.run.empty()) return;
  const auto store = store_of(config);
  work_beside(
      world,
      [&] {
        const fs::path& dir = config.run.dir;
        if (start.run() != past.run || fs::exists(dir / run::kMetricsFile)) return;
        // The metrics come last: a start that is killed before does all of it again.
        const auto there = store->list("run");
        for (const std::string name :
             {run::kEventsFile, run::kLogFile, run::kMetricsFile}) {
          const bool known =
              std::ranges::find(there, "run/" + name,
                                &checkpoint::MirrorStore::Entry::name) != there.end();
          if (known) fetch_history(*store, name, dir);
        }
      },
      [&] { store->stop(); });
}

void restore_from_mirror(const RunConfig& config, comm::Communicator& world,
                         RunStart& start, RunLog& run) {
  if (!config.checkpoint.mirror) return;
  const fs::path dir = checkpoint_dir(config);
  std::unique_ptr<checkpoint::MirrorStore> store;
  Found found;
  bool has_older = false;  // on rank 0: whether the run can go on without the mirror
  const Json told = Json::parse(comm::on_rank_zero(world, [&] {
    const bool by_step = config.checkpoint.resume.kind == ResumeFrom::Kind::Step;
    // Where checkpoint.dir has changed, the newest checkpoint lies in the former
    // directory.
    const run::RunPast& past = start.past();
    const bool is_elsewhere =
        !by_step && past.newest && !past.newest_in(dir) && !past.misses_newest(dir);
    if (is_missing_here(config) && !is_elsewhere) {
      store = store_of(config);
      try {
        found = find_in_mirror(config, start, run, *store);
      } catch (const Error& error) {
        raise_unreachable(config, error);
      }
      if (by_step && found.steps.empty()) refuse_step(config, found.others);
      start.go_on_from(found.writer);
    } else if (lacks_newest(config, start)) {
      has_older = true;
      store = store_of(config);
      found = find_newer(config, start, run, *store);
      if (!found.steps.empty()) start.go_on_from(found.writer);
    }
    return json_text(Json{
        {"run", found.run}, {"any", !found.steps.empty()}, {"marked", found.marked}});
  }));
  if (!told.at("any").get<bool>()) return;
  const auto owner = told.at("run").get<std::string>();
  if (told.at("marked").get<bool>()) {
    checkpoint::prove_checkpoints_dir(dir, owner, 0.0, world);
  } else {
    // Rank 0 may be the one that has lost its mount.
    checkpoint::confirm_missing(dir, owner, world);
  }
  const system::Stopwatch watch;
  checkpoint::MirrorStep fetched;
  fetched.step = -1;
  work_beside(
      world,
      [&] {
        const auto failure = Failure::of([&] {
          fetched = fetch_best(config, found, run, *store, [&] {
            // The marker is made before the checkpoint counts. So the next start knows
            // whose the checkpoint is, even if this start is killed.
            run::mark_checkpoints(dir, {owner, start.attempt(), {found.writer}});
          });
        });
        if (!failure) return;
        if (!has_older) failure->raise();
        run.log().warning("the checkpoint of the mirror is not taken: {}",
                          failure->message);
      },
      [&] { store->stop(); });
  const int64_t step =
      std::stoll(comm::on_rank_zero(world, [&] { return std::to_string(fetched.step); }));
  if (step < 0) {
    if (world.rank() == 0) start.go_on_from("");
    return;
  }
  prove_fetched(dir, world, owner, step);
  if (world.rank() > 0) return;
  const uint64_t bytes = fetched.manifest.total_bytes();
  run.log().info("step {} restored from {}: {} in {:.1f} s", step, store->place(),
                 human_bytes(bytes), watch.seconds());
  run.event(run::kMirrorRestoreEvent, {{"step", step},
                                       {"of_attempt", fetched.attempt},
                                       {"bytes", bytes},
                                       {"seconds", watch.seconds()},
                                       {"retries", store->retries()}});
}

}  // namespace longhaul::train
