#include "longhaul/train/save/resume.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/foreign_forms.h"
#include "longhaul/checkpoint/hf/hf_forms.h"
#include "longhaul/checkpoint/hf/model_check.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/checkpoint/read/saved_partition.h"
#include "longhaul/comm/agree.h"
#include "longhaul/families/differences.h"
#include "longhaul/format/finite.h"
#include "longhaul/format/hf_weights.h"
#include "longhaul/format/side_files.h"
#include "longhaul/run/events.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_past.h"
#include "longhaul/session/fingerprint.h"
#include "longhaul/train/history/run_costs.h"
#include "longhaul/train/log/metrics.h"
#include "longhaul/train/proof/certificate.h"
#include "longhaul/train/save/adapter_base.h"
#include "longhaul/train/save/checkpoint_choice.h"
#include "longhaul/train/save/checkpoint_home.h"
#include "longhaul/train/save/mirror_restore.h"
#include "longhaul/train/save/peer_memory.h"
#include "longhaul/train/save/state_read.h"

namespace longhaul::train {
namespace {

/// Throws ConfigError where the state is of another model than the run's. Every field is
/// compared before any tensor is read. `config` is the checkpoint's config.json, for a
/// state.json without its text; the file may be absent.
void check_model(const session::Session& session, const History& history,
                 const fs::path& from, const fs::path& config) {
  if (!history.model.empty()) {
    check_same_model(session.model(), history.model, from / "state.json", from.string(),
                     session.config().model.override_);
  } else if (fs::exists(config)) {
    check_same_model(session.model(), read_text(config), config, from.string(),
                     session.config().model.override_);
  }
}

/// Throws ConfigError where names or shapes of the checkpoint's tensors are not the
/// model's: fields of config.json need not show this.
void check_shapes(const session::Session& session,
                  const checkpoint::CheckpointReader& reader) {
  const ModelDescription& model = session.model().description;
  try {
    checkpoint::check_tensors(reader.path().string(), reader.tensors(checkpoint::kWeight),
                              model.saved_tensors(), model.spare_names());
  } catch (const InputError& error) {
    fail_config("model", "{} is a checkpoint of another model than {} describes: {}",
                reader.path().string(), session.model().source_path.string(),
                error.what());
  }
}

/// Returns the basis of the learning rates from the resumed step on. `saved` are the
/// checkpoint's settings, null for imports.
optim::ScheduleBasis schedule_from(const TrainingSession& session, const History& history,
                                   const RunConfig* saved) {
  const RunConfig& now = session.config();
  const int64_t steps = total_steps(session, history);
  if (saved == nullptr) return optim::imported_schedule(now, steps, history.step);
  const optim::ScheduleBasis basis = history.schedule.value_or(
      optim::ScheduleBasis{saved->schedule, saved->optimizer.lr,
                           total_steps(*saved, session.data().train_sequences)});
  return optim::resumed_schedule({*saved, basis, history.step}, now, steps,
                                 history.step < last_step(now, steps));
}

std::string first_of(const std::set<std::string>& names) {
  return fmt::format("{} ({}{})", counted(std::ssize(names), "parameter"), *names.begin(),
                     names.size() > 1 ? ", ..." : "");
}

/// Returns the counts of updates by parameter. `saved` are the checkpoint's settings,
/// null for imports. A checkpoint of an older program has no counts. Then `saved` says
/// which parameters were frozen, and the next update of these counts as their first.
optim::UpdateCounts counts_from(const session::Session& session, const History& history,
                                const RunConfig* saved) {
  optim::UpdateCounts counts =
      history.counts.value_or(optim::UpdateCounts(history.updates));
  if (!history.counts && saved != nullptr) {
    counts.begin_anew(
        optim::frozen_by_own_names(session.model().description, saved->optimizer));
  }
  return counts;
}

/// Warns where an older program began the run. That program matched a pattern only with
/// the parameters' own names here. Matches by other names take effect in the middle of
/// the run.
void tell_newly_meant(const session::Session& session, RunLog& run) {
  const std::set<std::string> meant =
      optim::newly_meant(session.model().description, session.config().optimizer);
  if (meant.empty()) return;
  run.log().warning(
      "the checkpoint is of an older program, whose patterns matched only "
      "longhaul's own names of parameters: from here on optimizer.groups and "
      "optimizer.no_decay also match {}, by names in Hugging Face's files",
      first_of(meant));
}

/// Tells which parameters were thawed or frozen since the checkpoint, and takes the
/// checkpoint's counts of updates. Must be called before the moments are read.
void take_counts(TrainingSession& session, RunLog& run, const History& history) {
  const std::set<std::string>& frozen = session.optimizer().frozen();
  std::set<std::string> thawed;
  std::set<std::string> dropped;
  for (const std::string& name : session.parameter_names()) {
    const bool has_moments = history.counts->of(name) > 0;
    if (!has_moments && !frozen.contains(name)) thawed.insert(name);
    if (has_moments && frozen.contains(name)) dropped.insert(name);
  }
  if (!thawed.empty() && history.updates > 0) {
    run.log().info(
        "thawed: {} had no update so far: the moments begin with zeros, and "
        "the bias correction begins with the next update",
        first_of(thawed));
  }
  if (!dropped.empty()) {
    run.log().info("frozen from here on: {}; the moments are not kept",
                   first_of(dropped));
  }
  session.optimizer().set_counts(*history.counts);
}

/// Decides whether the padding row of the embedding is trained, as it was when the run
/// began: an older program trained every row, and its checkpoints do not say so. An
/// import begins as a new run does.
void settle_padding(const session::Session& session, History& history, RunLog& run) {
  const auto row = session.model().description.padding_row();
  if (history.config_toml.empty()) history.padding_row = row;
  if (row && !history.padding_row) {
    run.log().info(
        "row {} of the embedding, which is pad_token_id's row, is trained "
        "like the others, because this run began that way; a new run does "
        "not train its look-ups, as in transformers",
        *row);
  }
}

/// Returns what a saved state says, and throws where it does not fit this run. `from` is
/// the state's path in messages, `config` the path of its config.json.
History read_history(const TrainingSession& session, RunLog& run, const Json& state,
                     const fs::path& from, const fs::path& config) {
  History history = History::from_json(state);
  check_model(session, history, from, config);
  check_base(session, history, from);
  settle_padding(session, history, run);
  if (history.config_toml.empty()) {
    run.log().warning(
        "{} was imported: it has no settings to compare with, and the data "
        "is read from its beginning",
        from.string());
    history.schedule = schedule_from(session, history, nullptr);
    history.counts = counts_from(session, history, nullptr);
    return history;
  }
  const RunConfig saved =
      parse_run_config(history.config_toml, (from / "state.json").string()).config;
  Json changes = Json::array();
  for (const ConfigChange& change : check_resume(saved, session.config())) {
    changes.push_back(
        {{"key", change.key}, {"was", change.old_value}, {"is", change.new_value}});
    run.log().info("changed since the checkpoint: {} was {}, is {}", change.key,
                   change.old_value, change.new_value);
  }
  if (!changes.empty()) {
    run.event(run::kSettingsEvent,
              {{"step", history.step}, {"changes", std::move(changes)}});
  }
  history.fingerprint[checkpoint::kPartition] = checkpoint::saved_partition(
      history.fingerprint, saved, session.model().description);
  if (!history.counts) tell_newly_meant(session, run);
  history.schedule = schedule_from(session, history, &saved);
  history.counts = counts_from(session, history, &saved);
  return history;
}

/// Logs what was resumed, after masters and moments were read from disk or from memory.
void tell_resumed(TrainingSession& session, RunLog& run, const History& history,
                  const std::string& line) {
  run.log().info(line);
  // A run that has begun is not stopped for patterns that match no parameter.
  for (const std::string& text : session.groups().unmatched) run.log().warning(text);
  const InitSection& init = session.config().init;
  if (session.model().description.has_base) {
    if (!init.adapter.empty()) {
      run.log().info("[init] adapter {} is not used: the checkpoint is newer",
                     init.adapter.string());
    }
  } else if (!init.weights.empty()) {
    run.log().info("[init] weights {} are not used: the checkpoint is newer",
                   init.weights.string());
  }
  const auto [differences, unknown] =
      session::compare_fingerprints(history.fingerprint, session.fingerprint());
  if (!differences.empty()) {
    run.log().warning(
        "the results may differ bitwise from those of an uninterrupted run: " +
        differences);
  } else if (!unknown.empty()) {
    run.log().info(
        "the results are bitwise those of an uninterrupted run only where the following "
        "have not changed, and the checkpoint does not record them: " +
        unknown);
  }
}

/// Fills masters and moments from a saved state, which the ranks of `readers` read
/// together. Returns what all ranks have read. Collective.
checkpoint::ReadReport restore(TrainingSession& session, RunLog& run,
                               const History& history,
                               const checkpoint::StoredTensors& stored,
                               const fs::path& where, comm::Communicator& readers) {
  checkpoint::ReadReport report;
  comm::on_all_ranks(session.world(), [&] {
    take_counts(session, run, history);
    report = restore_state(session.state(), stored, where.string(), readers);
  });
  return checkpoint::total(report, session.world());
}

/// Records the run that saved the checkpoint at `path`, if it is another one. Collective.
void tell_branch(const TrainingSession& session, RunLog& run, const fs::path& path,
                 const char* took) {
  comm::on_rank_zero(session.world(), [&] {
    const checkpoint::Manifest manifest = checkpoint::Manifest::read(path);
    if (manifest.run == run::read_run_identity(session.config().run.dir)) return;
    run.event(run::BranchEvent{manifest.run, run::RunPast::place_of(path), manifest.step,
                               took});
  });
}

History resume(TrainingSession& session, RunStart& start, RunLog& run,
               const fs::path& path) {
  std::optional<checkpoint::CheckpointReader> reader;
  History history;
  comm::on_all_ranks(session.world(), [&] {
    reader.emplace(checkpoint::CheckpointReader::open(path, *session.machine().node));
    history = read_history(session, run, reader->state(), path,
                           reader->hf_dir() / "config.json");
    check_shapes(session, *reader);
    start.begin(history.step);
  });
  const auto report =
      restore(session, run, history, *reader, path, *session.machine().node);
  tell_resumed(session, run, history,
               fmt::format("weights, moments and data position: {} (step {}, {} tokens), "
                           "{}",
                           path.string(), history.step, grouped(history.tokens),
                           report.describe()));
  tell_branch(session, run, path, run::BranchEvent::kState);
  start.has_read(history.step);
  return history;
}

/// Returns whether the error lies in a checkpoint's files, so that another checkpoint may
/// be readable. Settings that do not fit, a lost rank and faults of this program would be
/// the same with another checkpoint.
bool is_of_the_file(const Error& error) {
  const bool file_kind =
      error.kind() == ErrorKind::Input || error.kind() == ErrorKind::Temporary;
  return file_kind && error.area() != "comm";
}

/// What to do with a checkpoint whose weights were saved as NaN or infinity: a start
/// refuses it and tells the person, a rollback takes an older one.
enum class NotFinite { Refused, PassedOver };

/// Resumes from the first of these checkpoints that can be read. All ranks take the same
/// one. Collective.
History resume_from_best(TrainingSession& session, RunStart& start, RunLog& run,
                         const std::vector<fs::path>& paths, NotFinite not_finite) {
  for (size_t i = 0;; ++i) {
    try {
      return resume(session, start, run, paths[i]);
    } catch (const Error& error) {
      if (!is_of_the_file(error) || i + 1 == paths.size()) throw;
      if (error.area() == format::kValuesArea && not_finite == NotFinite::Refused) throw;
      run.log().warning("CHECKPOINT DAMAGED: {} cannot be loaded: {}", paths[i].string(),
                        error.what());
      run.log().warning("going back to {}: the steps since are trained again",
                        paths[i + 1].string());
      run.event(run::FallBackEvent{paths[i].filename().string(),
                                   paths[i + 1].filename().string(), error.what()});
    }
  }
}

History resume_in_memory(TrainingSession& session, RunStart& start, RunLog& run,
                         const checkpoint::MemoryStep& kept, const std::string& disk) {
  const fs::path dir = memory_dir_of(session);
  std::optional<checkpoint::MemoryTensors> tensors;
  History history;
  comm::on_all_ranks(session.world(), [&] {
    tensors.emplace(kept, dir);
    history = read_history(session, run, parse_json(kept.state, dir.string()), dir, {});
    start.begin(history.step);
  });
  const auto report = restore(session, run, history, *tensors, dir, session.world());
  tell_resumed(session, run, history,
               fmt::format("resume from step {} in memory of {} (checkpoint on "
                           "disk: {}), {} tokens, {}",
                           history.step, counted(kept.machines, "node"), disk,
                           grouped(history.tokens), report.describe()));
  run.event(
      run::kMemoryResumeEvent,
      {{"step", history.step}, {"nodes", kept.machines}, {"seconds", report.seconds}});
  return history;
}

/// Resumes from the newest state in memory, where it is as new as the newest checkpoint
/// on disk; returns nothing where it is not. Collective.
std::optional<History> resume_from_memory(TrainingSession& session, RunStart& start,
                                          RunLog& run,
                                          const std::vector<fs::path>& paths) {
  const auto kept = newest_in_memory(session, start, run, paths);
  if (!kept) return std::nullopt;
  const std::string disk =
      paths.empty() ? "none" : fmt::format("step {}", *run::step_of(paths[0]));
  try {
    const History history = resume_in_memory(session, start, run, *kept, disk);
    settle_memory(session, &*kept);
    return history;
  } catch (const Error& error) {
    if (!is_of_the_file(error)) throw;
    run.log().warning(
        "step {} in memory cannot be loaded: {}; going back to "
        "the checkpoint on disk: {}",
        kept->step, error.what(), disk);
    run.event(run::FallBackEvent{fmt::format("memory of step {}", kept->step), disk,
                                 error.what()});
    return std::nullopt;
  }
}

/// Throws ConfigError where matrices would begin as zeros, from which nothing is learnt.
/// (The library transformers takes 0.02 where the field is 0.)
void check_first_values(const ModelConfig& model) {
  for (const ParameterDescription& p : model.description.parameters()) {
    if (p.init.kind != Init::Kind::Normal || p.init.stddev > 0.0) continue;
    fail_config("model",
                "{}: initializer_range = 0 makes {} begin as zeros; set "
                "model.override.initializer_range, usually to 0.02",
                model.source_path.string(), p.name);
  }
}

void initialise(TrainingSession& session, RunLog& run) {
  const RunConfig& config = session.config();
  check_trainable(session.model());
  // Checkpoints carry the model's side files, so bad files are refused here.
  comm::on_rank_zero(session.world(), [&] {
    format::check_side_files(session.model().source_path.parent_path());
  });
  if (config.init.weights.empty()) {
    check_first_values(session.model());
    initialise_weights(session.state(), static_cast<uint64_t>(config.run.seed));
    const std::string line = fmt::format("weights: RANDOM, seed {}", config.run.seed);
    const fs::path dir = session.model().source_path.parent_path();
    bool has_weights = true;
    try {
      has_weights = !format::list_hf_shards(dir).empty();
    } catch (const InputError&) {  // a damaged set of weights is a set of weights too
    }
    if (has_weights) {
      run.log().warning(
          "{}, although {} holds weights; set init.weights to start from them", line,
          dir.string());
    } else {
      run.log().info(line);
    }
    return;
  }
  const auto source = open_first_weights(session);
  session.set_init(source);
  if (!source->source().note.empty()) run.log().info(source->source().note);
  for (const std::string& line : source->ignored())
    run.log().info("passed over: " + line);
  checkpoint::ReadReport mine;
  comm::on_all_ranks(session.world(), [&] {
    mine = load_weights(session.state(), *source, *session.machine().node);
  });
  const auto report = checkpoint::total(mine, session.world());
  if (session.model().description.has_base) {
    run.log().info("adapter: {}", config.init.adapter.empty()
                                      ? fmt::format("NEW, seed {}", config.run.seed)
                                      : config.init.adapter.string());
    return;
  }
  run.log().info("weights: {}; {}", source->describe(), report.describe());
}

/// Warns of steps that this run had done and that no checkpoint holds: they are done
/// again. Collective.
void tell_lost_steps(const session::Session& session, RunLog& run) {
  comm::on_rank_zero(session.world(), [&] {
    const int64_t done = last_step_of_metrics(session.config().run.dir);
    if (done > 0) {
      run.log().warning(
          "this run had reached step {}, but no checkpoint of it was ever "
          "committed: it begins again, and these steps are trained again",
          done);
    }
  });
}

/// Gives the session the state with which the run began: zero moments and initial
/// weights. Collective.
void begin_anew(TrainingSession& session, RunLog& run) {
  for (optim::BucketState& state : session.optimizer().states()) {
    if (!state.exp_avg.defined()) continue;
    state.exp_avg.zero_();
    state.exp_avg_sq.zero_();
  }
  session.optimizer().set_counts({});
  comm::on_all_ranks(session.world(), [&] { initialise(session, run); });
}

/// Sets the row of the embedding that is not trained (null: all rows are trained) on
/// every rank, whatever parts of the model the rank has.
void follow_padding(const session::Session& session, const std::optional<int64_t>& row) {
  const std::optional<int64_t> described = session.model().description.padding_row();
  LH_CHECK(!row || row == described, "resume", "row {} of the embedding, not row {}",
           row.value_or(-1), described.value_or(-1));
  for (const session::Chunk& chunk : session.chunks()) {
    for (const tensor::ParameterPtr& parameter : chunk.model->parameters()) {
      if (parameter->padding_row()) parameter->set_padding_row(row);
    }
  }
}

/// Throws ConfigError where run.until is past or run.budget is spent, and nothing has
/// decided yet where the run ends. Collective.
void refuse_past_end(const TrainingSession& session, const History& history) {
  const auto& schedule = history.schedule;
  const RunConfig& config = session.config();
  if (!config.run.ends_by_speed()) return;
  const bool decided = schedule && (schedule->ending ||
                                    history.step >= optim::stable_steps(*schedule).end);
  if (decided || history.step >= last_step(config, total_steps(session, history))) return;
  comm::on_rank_zero(session.world(), [&] { train::refuse_past_end(config); });
}

/// Puts into the history what describes this run itself, whatever the run began from.
void identify(const TrainingSession& session, History& history) {
  history.config_toml = to_toml(session.config());
  history.model = session.model().source_json;
  if (!history.schedule) {
    history.schedule =
        optim::first_schedule(session.config(), total_steps(session, history));
  }
  history.counts = session.optimizer().counts();
  history.base = session.base_hash();
  history.fingerprint = session.fingerprint();
}

}  // namespace

int64_t total_steps(const TrainingSession& session, const History& history) {
  return longhaul::total_steps(
      session.config(), session.data().train_sequences,
      {history.step, history.cursor.sequences_of(session.data().train_sequences)});
}

History roll_back(TrainingSession& session, RunStart& start, RunLog& run,
                  const History& now, int64_t steps) {
  const auto paths = rollback_candidates(session, start, run, now.step - steps);
  History history;
  if (paths.empty()) {
    begin_anew(session, run);
    history.padding_row = now.padding_row;
  } else {
    history = resume_from_best(session, start, run, paths, NotFinite::PassedOver);
  }
  set_newer_aside(session, start, run, history.step, SetAside::Always);
  session.replicas().share_weights();
  if (paths.empty()) certify_weights(session, run.log());
  history.cursor.pass_over_last(now.cursor, steps * session.config().batch.global_size);
  history.guard.bad_steps = now.guard.bad_steps;
  history.guard.rollbacks = now.guard.rollbacks + 1;
  history.validation.take_begins(now.validation);
  history.reference = now.reference;
  identify(session, history);
  history.schedule->ending = now.schedule->ending;
  return history;
}

void refuse_foreign_start(const RunConfig& config, const RunStart& start,
                          comm::Communicator& world) {
  if (start.has_begun()) return;
  comm::on_rank_zero(world, [&] { checkpoint::refuse_foreign_start(config); });
}

std::vector<int64_t> find_partition(const RunConfig& config,
                                    const ModelDescription& model,
                                    comm::Communicator& world, RunStart& start,
                                    RunLog& run) {
  restore_from_mirror(config, world, start, run);
  const std::string found = comm::on_rank_zero(world, [&] {
    return json_text(Json(checkpoint::partition_of_start(config, model)));
  });
  return Json::parse(found).get<std::vector<int64_t>>();
}

History load_state(TrainingSession& session, RunStart& start, RunLog& run) {
  const Home home = look_at_home(session, start, run);
  start.prove_expected(session.world());
  const auto asked = session.config().checkpoint.resume.kind;
  const std::vector<fs::path> paths = home == Home::Gone
                                          ? std::vector<fs::path>()
                                          : resume_candidates(session, start, run);
  load_base(session, run);
  History history;
  if (auto kept = resume_from_memory(session, start, run, paths)) {
    history = std::move(*kept);
    if (home == Home::Gone) {
      run.log().warning(
          "CHECKPOINTS GONE: {} has no checkpoints any more; the run goes on "
          "from memory, and its next checkpoint will be the only one",
          checkpoint_dir(session.config()).string());
    }
  } else if (home == Home::Gone) {
    refuse_gone(session, start);
  } else if (paths.empty()) {
    // These throw before anything large is read.
    total_steps(session, history);
    refuse_past_end(session, history);
    optim::refuse_unmatched(session.config(), session.groups());
    if (asked != ResumeFrom::Kind::Never) {
      refuse_unknown_past(session, start);
      tell_lost_steps(session, run);
    }
    comm::on_all_ranks(session.world(), [&] { initialise(session, run); });
    const checkpoint::WeightsSource* init = session.init().get();
    using Kind = checkpoint::ModelSource::Kind;
    if (init != nullptr && init->source().kind == Kind::Checkpoint) {
      tell_branch(session, run, init->source().path, run::BranchEvent::kWeights);
    }
    history.padding_row = session.model().description.padding_row();
    if (history.padding_row) {
      run.log().info(
          "pad_token_id: look-ups of row {} of the embedding are not trained, as in "
          "transformers",
          *history.padding_row);
    }
    settle_memory(session, nullptr);
  } else {
    history = resume_from_best(session, start, run, paths, NotFinite::Refused);
    tell_unknown_past(session, start, run, history.step);
    set_newer_aside(session, start, run, history.step, SetAside::IfAsked);
    settle_memory(session, nullptr);
  }
  refuse_past_end(session, history);
  follow_padding(session, history.padding_row);
  note_loaded(session, start, run);
  session.replicas().share_weights();
  certify_weights(session, run.log());
  identify(session, history);
  return history;
}

}  // namespace longhaul::train
