#include "longhaul/train/resume.h"

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <utility>

#include "longhaul/base/counted.h"
#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/hf_forms.h"
#include "longhaul/checkpoint/reader.h"
#include "longhaul/checkpoint/tied_head.h"
#include "longhaul/comm/agree.h"
#include "longhaul/families/differences.h"
#include "longhaul/run/files.h"
#include "longhaul/train/certificate.h"
#include "longhaul/train/fingerprint.h"
#include "longhaul/train/peer_memory.h"

namespace longhaul::train {
namespace {

/// Starts from one checkpoint that may fail before it is set aside.
constexpr int kFailedStarts = 2;

/// Paths as rank 0 sees them, on all ranks.
std::vector<fs::path> agree_on_paths(const Session& session,
                                     const std::function<std::vector<fs::path>()>& find) {
  const std::string text = comm::on_rank_zero(*session.world, [&] {
    // No JSON: a path may hold any byte but NUL.
    std::string paths;
    for (const fs::path& path : find()) paths += path.string() + '\0';
    return paths;
  });
  std::vector<fs::path> paths;
  for (size_t begin = 0; begin < text.size(); begin = text.find('\0', begin) + 1) {
    paths.emplace_back(text.substr(begin, text.find('\0', begin) - begin));
  }
  return paths;
}

/// Newer checkpoints that were whole once and have lost a file since. Rank 0.
void tell_passed_over(const fs::path& taken, RunLog& run) {
  for (const auto& entry : checkpoint::list_checkpoints(taken.parent_path())) {
    const bool committed = fs::exists(entry.path / kManifestFile);
    if (entry.valid || !committed || entry.step <= step_of(taken)) continue;
    run.event(FallBackEvent{entry.path.filename().string(), taken.filename().string(),
                            entry.problem});
  }
}

/// The checkpoints to continue from, the best first; the same on all ranks.
std::vector<fs::path> candidates(const Session& session, const RunStart& start,
                                 RunLog& run) {
  return agree_on_paths(session, [&] {
    std::vector<std::string> skipped;
    auto found = checkpoint::resume_candidates(session.config.checkpoint.resume,
                                               checkpoint_dir(session.config), &skipped);
    for (const std::string& line : skipped) run.log().warning(line);
    if (!found.empty()) tell_passed_over(found[0], run);
    if (found.size() > 1 && start.failed_starts(found[0]) >= kFailedStarts) {
      const fs::path aside = checkpoint::set_aside(found[0], "failed_starts");
      run.log().warning(fmt::format(
          "{} starts from {} in a row did not get through one step: it is set aside as "
          "{}, and the run goes on from {}",
          kFailedStarts, found[0].string(), aside.string(), found[1].string()));
      found.erase(found.begin());
    }
    return found;
  });
}

/// ConfigError where the state is of another model than the run's: every field is
/// compared, before any tensor is read. `config` is the checkpoint's config.json, for
/// states that do not hold the text; it may be absent.
void check_model(const Session& session, const History& history, const fs::path& from,
                 const fs::path& config) {
  if (!history.model.empty()) {
    check_same_model(session.model_config, history.model, from / "state.json",
                     from.string());
  } else if (fs::exists(config)) {
    check_same_model(session.model_config, read_text(config), config, from.string());
  }
}

/// The same of names and shapes, which no config.json need have told.
void check_shapes(const Session& session, const checkpoint::CheckpointReader& reader) {
  const ModelDescription& model = session.model_config.description;
  try {
    checkpoint::check_tensors(reader.path().string(), reader.tensors(checkpoint::kWeight),
                              model.tensors(), model.spare_names());
  } catch (const InputError& error) {
    throw ConfigError(
        "model", fmt::format("{} is of another model than {}: {}", reader.path().string(),
                             session.model_config.source_path.string(), error.what()));
  }
}

/// The schedule from here on: `saved` are the checkpoint's settings, absent for imports.
optim::ScheduleBasis schedule_from(const Session& session, const History& history,
                                   const RunConfig* saved) {
  const RunConfig& now = session.config;
  const int64_t steps = total_steps(now, session.train_sequences);
  if (saved == nullptr) return optim::imported_schedule(now, steps, history.step);
  const optim::ScheduleBasis basis = history.schedule.value_or(
      optim::ScheduleBasis{saved->schedule, saved->optimizer.lr,
                           total_steps(*saved, session.train_sequences)});
  return optim::resumed_schedule({*saved, basis, history.step}, now, steps,
                                 history.step < last_step(now, steps));
}

/// What a saved state says, if it fits this run; `from` names it, `config` is its
/// config.json.
History read_history(const Session& session, RunLog& run, const Json& state,
                     const fs::path& from, const fs::path& config) {
  History history = History::from_json(state);
  check_model(session, history, from, config);
  if (history.config_toml.empty()) {
    run.log().warning(
        fmt::format("{} was imported: there are no settings to compare with, and the "
                    "data begins anew",
                    from.string()));
    history.schedule = schedule_from(session, history, nullptr);
    return history;
  }
  const RunConfig saved =
      parse_run_config(history.config_toml, (from / "state.json").string()).config;
  for (const ConfigChange& change : check_resume(saved, session.config)) {
    run.log().info(fmt::format("changed since the checkpoint: {} was {}, is {}",
                               change.key, change.old_value, change.new_value));
  }
  history.schedule = schedule_from(session, history, &saved);
  return history;
}

/// What follows the reading of masters and moments, wherever they came from.
void tell_resumed(Session& session, RunLog& run, const History& history,
                  const std::string& line) {
  session.optimizer->set_updates(history.updates);
  run.log().info(line);
  if (!session.config.init.weights.empty()) {
    run.log().info(fmt::format("[init] weights {} are not used: the checkpoint is newer",
                               session.config.init.weights.string()));
  }
  const auto [differences, unknown] =
      compare_fingerprints(history.fingerprint, session.fingerprint);
  if (!differences.empty()) {
    run.log().warning("not bitwise the uninterrupted run: " + differences);
  } else if (!unknown.empty()) {
    run.log().info(
        "bitwise the uninterrupted run only where these are as they were, which the "
        "checkpoint does not say: " +
        unknown);
  }
}

History resume(Session& session, RunStart& start, RunLog& run, const fs::path& path) {
  std::optional<checkpoint::CheckpointReader> reader;
  History history;
  comm::on_all_ranks(*session.world, [&] {
    reader.emplace(checkpoint::CheckpointReader::open(path, *session.node));
    history = read_history(session, run, reader->state(), path,
                           reader->hf_dir() / "config.json");
    check_shapes(session, *reader);
    start.begin(history.step);
  });
  checkpoint::ReadReport report;
  comm::on_all_ranks(*session.world, [&] {
    report = restore_state(session.state(), *reader, *session.node);
  });
  report = checkpoint::total(report, *session.world);
  tell_resumed(session, run, history,
               fmt::format("weights, moments and data position: {} (step {}, {} tokens), "
                           "{}",
                           path.string(), history.step, grouped(history.tokens),
                           report.describe()));
  start.has_read(history.step);
  return history;
}

/// Whether another checkpoint may do better: settings that do not fit, a lost rank and
/// our own faults stay what they are.
bool is_of_the_file(const Error& error) {
  const bool file_kind =
      error.kind() == ErrorKind::Input || error.kind() == ErrorKind::Temporary;
  return file_kind && error.area() != "comm";
}

/// All ranks go back together, as far as they must.
History resume_from_best(Session& session, RunStart& start, RunLog& run,
                         const std::vector<fs::path>& paths) {
  for (size_t i = 0;; ++i) {
    try {
      return resume(session, start, run, paths[i]);
    } catch (const Error& error) {
      if (!is_of_the_file(error) || i + 1 == paths.size()) throw;
      run.log().warning(fmt::format("CHECKPOINT DAMAGED: {} cannot be loaded: {}",
                                    paths[i].string(), error.what()));
      run.log().warning(fmt::format("going back to {}: the steps since are trained again",
                                    paths[i + 1].string()));
      run.event(FallBackEvent{paths[i].filename().string(),
                              paths[i + 1].filename().string(), error.what()});
    }
  }
}

History resume_in_memory(Session& session, RunStart& start, RunLog& run,
                         const checkpoint::MemoryStep& kept, const std::string& disk) {
  const fs::path dir = memory_dir_of(session);
  std::optional<checkpoint::MemoryTensors> tensors;
  History history;
  comm::on_all_ranks(*session.world, [&] {
    tensors.emplace(kept, dir);
    history = read_history(session, run, parse_json(kept.state, dir.string()), dir, {});
    start.begin(history.step);
  });
  checkpoint::ReadReport report;
  comm::on_all_ranks(*session.world, [&] {
    report = restore_state(session.state(), *tensors, *session.world);
  });
  report = checkpoint::total(report, *session.world);
  tell_resumed(session, run, history,
               fmt::format("resume from step {} in memory of {} (checkpoint on "
                           "disk: {}), {} tokens, {}",
                           history.step, counted(kept.machines, "node"), disk,
                           grouped(history.tokens), report.describe()));
  run.event(
      kMemoryResumeEvent,
      {{"step", history.step}, {"nodes", kept.machines}, {"seconds", report.seconds}});
  return history;
}

/// From the newest state in memory, where that is as new as what is on disk.
std::optional<History> resume_from_memory(Session& session, RunStart& start, RunLog& run,
                                          const std::vector<fs::path>& paths) {
  const auto kept = newest_in_memory(session, start, run, paths);
  if (!kept) return std::nullopt;
  const std::string disk =
      paths.empty() ? "none" : fmt::format("step {}", *step_of(paths[0]));
  try {
    const History history = resume_in_memory(session, start, run, *kept, disk);
    settle_memory(session, &*kept);
    return history;
  } catch (const Error& error) {
    if (!is_of_the_file(error)) throw;
    run.log().warning(
        fmt::format("step {} in memory cannot be loaded: {}; going back to "
                    "the checkpoint on disk: {}",
                    kept->step, error.what(), disk));
    run.event(
        FallBackEvent{fmt::format("memory of step {}", kept->step), disk, error.what()});
    return std::nullopt;
  }
}

/// After a rollback by `checkpoint.resume = STEP` the newer checkpoints belong to a past
/// that has not happened: a later start must not find them.
void set_newer_aside(const Session& session, RunLog& run, int64_t step) {
  comm::on_rank_zero(*session.world, [&] {
    for (const auto& entry :
         checkpoint::list_checkpoints(checkpoint_dir(session.config))) {
      if (entry.step <= step || !entry.valid) continue;
      const fs::path aside = checkpoint::set_aside(entry.path, "superseded");
      run.log().warning(
          fmt::format("{} is newer than step {}, where this run goes on: it is kept as "
                      "{}; delete it when you need the space",
                      entry.path.string(), step, aside.string()));
    }
    return std::string();
  });
}

void initialise(Session& session, RunLog& run) {
  const RunConfig& config = session.config;
  if (config.init.weights.empty()) {
    initialise_weights(session.state(), static_cast<uint64_t>(config.run.seed));
    const std::string line = fmt::format("weights: RANDOM, seed {}", config.run.seed);
    const fs::path dir = session.model_config.source_path.parent_path();
    const bool has_weights = fs::exists(dir / "model.safetensors") ||
                             fs::exists(dir / "model.safetensors.index.json");
    if (has_weights) {
      run.log().warning(
          fmt::format("{}, although {} holds weights; set init.weights to start "
                      "from them",
                      line, dir.string()));
    } else {
      run.log().info(line);
    }
    return;
  }
  const ModelDescription& model = session.model_config.description;
  session.init = checkpoint::as_parameters(
      checkpoint::WeightsSource::open(config.init.weights, *session.world,
                                      checkpoint::WeightsSource::Files::Held),
      model);
  const auto& source = session.init;
  checkpoint::check_weights(source, model);
  comm::on_rank_zero(*session.world, [&] {
    checkpoint::check_tied_head(*source, session.model_config);
    return std::string();
  });
  for (const std::string& line : source->ignored())
    run.log().info("passed over: " + line);
  const auto report = checkpoint::total(
      load_weights(session.state(), *source, *session.node), *session.world);
  run.log().info(fmt::format("weights: {}; {}", source->describe(), report.describe()));
}

/// To go back to at most this step, the best first; empty: the run begins anew. Rank 0.
std::vector<fs::path> rollback_candidates(const Session& session, RunLog& run,
                                          int64_t step) {
  const RunConfig& config = session.config;
  std::vector<fs::path> old_enough;
  std::optional<checkpoint::CheckpointEntry> oldest;
  for (const auto& entry : checkpoint::list_checkpoints(checkpoint_dir(config))) {
    if (!entry.valid) continue;
    if (!oldest) oldest = entry;
    if (entry.step <= step) old_enough.insert(old_enough.begin(), entry.path);
  }
  if (!old_enough.empty()) return old_enough;
  // Deleted long ago: what is left loses less than a new begin.
  if (oldest && step >= config.checkpoint.every) {
    run.log().warning(fmt::format(
        "no checkpoint of step {} or before is left: going back to the oldest, step {}",
        step, oldest->step));
    return {oldest->path};
  }
  if (config.checkpoint.resume.kind != ResumeFrom::Kind::Path) return {};
  return checkpoint::resume_candidates(config.checkpoint.resume, checkpoint_dir(config));
}

/// As the run began: moments are zeros.
void begin_anew(Session& session, RunLog& run) {
  for (optim::BucketState& state : session.optimizer->states()) {
    if (!state.exp_avg.defined()) continue;
    state.exp_avg.zero_();
    state.exp_avg_sq.zero_();
  }
  session.optimizer->set_updates(0);
  comm::on_all_ranks(*session.world, [&] { initialise(session, run); });
}

/// What the run says of itself, whatever it began with.
void identify(const Session& session, History& history) {
  history.config_toml = to_toml(session.config);
  history.model = session.model_config.source_json;
  if (!history.schedule) {
    history.schedule = optim::first_schedule(
        session.config, total_steps(session.config, session.train_sequences));
  }
  history.fingerprint = session.fingerprint;
}

}  // namespace

History roll_back(Session& session, RunStart& start, RunLog& run, const History& now,
                  int64_t steps) {
  const auto paths = agree_on_paths(
      session, [&] { return rollback_candidates(session, run, now.step - steps); });
  History history;
  if (paths.empty()) {
    begin_anew(session, run);
  } else {
    history = resume_from_best(session, start, run, paths);
  }
  set_newer_aside(session, run, history.step);
  session.replicas->share_weights();
  if (paths.empty()) certify_weights(session, run.log());
  history.cursor.pass_over_last(now.cursor, steps * session.config.batch.global_size);
  history.guard.bad_steps = now.guard.bad_steps;
  history.guard.rollbacks = now.guard.rollbacks + 1;
  history.validation.take_begins(now.validation);
  identify(session, history);
  return history;
}

History load_state(Session& session, RunStart& start, RunLog& run) {
  const std::vector<fs::path> paths = candidates(session, start, run);
  History history;
  if (auto kept = resume_from_memory(session, start, run, paths)) {
    history = std::move(*kept);
  } else if (paths.empty()) {
    comm::on_all_ranks(*session.world, [&] { initialise(session, run); });
    settle_memory(session, nullptr);
  } else {
    history = resume_from_best(session, start, run, paths);
    const auto asked = session.config.checkpoint.resume.kind;
    if (asked == ResumeFrom::Kind::Step) set_newer_aside(session, run, history.step);
    settle_memory(session, nullptr);
  }
  session.replicas->share_weights();
  certify_weights(session, run.log());
  identify(session, history);
  return history;
}

}  // namespace longhaul::train
