#include "longhaul/train/save/peer_memory.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/process.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/checkpoint/memory/memory_directory.h"
#include "longhaul/checkpoint/memory/survey.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/run/files.h"
#include "longhaul/session/router_loads.h"

namespace longhaul::train {
namespace {

/// Starts from one state in memory that may fail in a row before the checkpoint on disk
/// is taken instead.
constexpr int kFailedMemoryStarts = 2;

/// Returns the directory that a supervisor has made for the run's memory; null: there is
/// no supervisor.
const char* memory_dir_given() { return std::getenv("LONGHAUL_MEMORY_DIR"); }

bool is_supervised_restart() {
  const char* const text = std::getenv("LONGHAUL_RESTART");
  std::string_view number = text == nullptr ? "" : text;
  return take_number<int>(number) > 0;
}

/// Returns the run's key; makes a new one where the run has none. Collective.
std::string key_of(const session::Session& session) {
  return comm::on_rank_zero(session.world(), [&] {
    const fs::path& dir = session.config().run.dir;
    const auto key = checkpoint::read_run_key(dir);
    return key ? *key : checkpoint::renew_run_key(dir);
  });
}

/// Returns the bytes of state.json with loads of experts, which a run that begins does
/// not have yet.
size_t state_bytes(const session::Session& session, History history) {
  history.expert_loads = session::longest_counts(
      session.model().network, session.layout().description().batch.tokens_per_step);
  return json_text(history.to_json()).size();
}

}  // namespace

fs::path memory_dir_of(const session::Session& session) {
  fs::path mine;
  comm::on_all_ranks(session.world(), [&] {
    const char* const given = memory_dir_given();
    mine = checkpoint::memory_directory(given == nullptr ? "" : given,
                                        session.config().run.dir, job_id());
  });
  const std::string name = session.world().broadcast_string(mine.filename().string(), 0);
  return mine.parent_path() / name;
}

PeerMemory::PeerMemory(const TrainingSession& session, const History& history,
                       RunStart& start, RunLog& run, StateCapture& capture)
    : run_(run),
      capture_(capture),
      attempt_(start.attempt()),
      every_(session.config().resilience.peer_memory_every) {
  if (every_ == 0) return;
  checkpoint::KeeperOptions options;
  options.dir = memory_dir_of(session);
  options.run = key_of(session);
  options.attempt = attempt_;
  options.layout = session::layout_of(session);
  options.threads = at::get_num_threads();
  // The files in memory that this start has read stay until a newer step is kept.
  options.replaces =
      session.world().any(!checkpoint::list_part_names(options.dir).empty());
  const checkpoint::Snapshot state = capture.capture(session.state());
  start.use_attempt();  // the parts have the number in their names
  try {
    keeper_.emplace(options, state.tensors, state_bytes(session, history),
                    session.world());
  } catch (const Error& error) {
    const bool of_settings = error.kind() == ErrorKind::Config;
    if (error.area() != "memory" || (of_settings && !is_supervised_restart())) throw;
    run.log().warning("PEER MEMORY IS OFF: {}", error.what());
    return;
  }
  const checkpoint::MemoryUse& use = keeper_->use();
  run.log().info(
      "peer memory: the state is kept every {} steps in {}; it takes {} on this machine: "
      "two slots, each with {} of its ranks and {} of its neighbours",
      every_, options.dir.string(), human_bytes(2 * (use.own_bytes + use.other_bytes)),
      human_bytes(use.own_bytes), human_bytes(use.other_bytes));
  if (use.machines == 1) {
    run.log().warning(
        "peer memory: all ranks are on one machine, so there is only one copy, which is "
        "lost with the machine");
  }
}

void PeerMemory::keep(const TrainingSession& session, const History& history) {
  if (!keeper_ || history.step % every_ != 0) return;
  session.world().ledger().set("peer memory", history.step);
  const checkpoint::Snapshot state = capture_.shared(session.state());
  const std::string history_text = json_text(history.to_json());
  if (state.ready) state.ready(session.layout().watch());
  try {
    const checkpoint::KeepReport report =
        keeper_->keep(history.step, history_text, state.tensors);
    ++kept_;
    seconds_ += report.seconds;
    waited_ += report.waited;
    if (!report.whole && !outgrown_) {
      run_.log().warning(
          "step {} is not kept in memory: its state.json is larger than the "
          "space reserved at the start",
          history.step);
      outgrown_ = true;
    }
  } catch (const Error& error) {
    if (error.area() != "memory") throw;
    run_.log().warning("PEER MEMORY IS OFF: {}", error.what());
    keeper_->remove();
    keeper_.reset();
  }
}

void PeerMemory::forget(const session::Session& session) {
  if (!keeper_) return;
  keeper_->set_run(comm::on_rank_zero(session.world(), [&] {
    return checkpoint::renew_run_key(session.config().run.dir);
  }));
}

void PeerMemory::end(const session::Session& session, bool saved) {
  if (!keeper_) return;
  tell_times();
  if (!saved) {
    keeper_->settle();
    return;
  }
  keeper_->remove();
  comm::on_rank_zero(session.world(),
                     [&] { checkpoint::remove_run_key(session.config().run.dir); });
}

void PeerMemory::tell_times() {
  if (kept_ == 0) return;
  const auto steps = static_cast<double>(kept_);
  run_.log().info("peer memory: {} kept, {:.1f} ms each, of which {:.1f} ms were waiting",
                  counted(kept_, "step"), 1e3 * seconds_ / steps, 1e3 * waited_ / steps);
  run_.event(run::kPeerMemoryEvent, {{"attempt", attempt_},
                                     {"steps", kept_},
                                     {"bytes", keeper_->use().own_bytes},
                                     {"seconds", seconds_},
                                     {"waited", waited_}});
}

std::optional<checkpoint::MemoryStep> newest_in_memory(
    const session::Session& session, const RunStart& start, RunLog& run,
    const std::vector<fs::path>& checkpoints) {
  const RunConfig& config = session.config();
  if (config.resilience.peer_memory_every == 0 ||
      config.checkpoint.resume.kind != ResumeFrom::Kind::Latest) {
    return std::nullopt;
  }
  checkpoint::SurveyOptions options;
  options.dir = memory_dir_of(session);
  const Json told = Json::parse(comm::on_rank_zero(session.world(), [&] {
    Json facts = {{"run", checkpoint::read_run_key(config.run.dir).value_or("")},
                  {"attempt", 0},
                  {"step", 0}};
    if (const auto& lost = start.past().newest; checkpoints.empty() && lost) {
      // The lost checkpoint may come back. Then an older state in memory must not replace
      // it.
      facts["step"] = *lost;
    }
    if (!checkpoints.empty()) {
      const auto manifest = checkpoint::Manifest::read(checkpoints[0]);
      facts["attempt"] = manifest.attempt;
      facts["step"] = manifest.step;
    }
    return json_text(facts);
  }));
  options.run = told["run"].get<std::string>();
  if (options.run.empty()) return std::nullopt;
  options.min_attempt = told["attempt"].get<int>();
  options.min_step = told["step"].get<int64_t>();
  options.threads = at::get_num_threads();
  std::vector<std::string> notes;
  auto found = checkpoint::find_in_memory(options, session.world(), notes);
  for (const std::string& note : notes) run.log().warning(note);
  if (!found || checkpoints.empty()) return found;
  const bool failed = session.world().any(
      start.failed_starts(run::step_directory_name(found->step)) >= kFailedMemoryStarts);
  if (!failed) return found;
  run.log().warning(
      "{} starts in a row from step {} in memory did not complete one step: "
      "the run goes on from {}",
      kFailedMemoryStarts, found->step, checkpoints[0].string());
  return std::nullopt;
}

void settle_memory(const session::Session& session, const checkpoint::MemoryStep* used) {
  const fs::path dir = memory_dir_of(session);
  if (used == nullptr) {
    comm::on_rank_zero(session.world(),
                       [&] { checkpoint::remove_run_key(session.config().run.dir); });
  }
  if (session.machine().node->rank() == 0) {
    checkpoint::remove_parts(dir, [&](const checkpoint::PartName& name) {
      return used != nullptr && std::ranges::any_of(used->parts, [&](const auto& part) {
               return part.name == name.text();
             });
    });
  }
  session.world().barrier_wait();
}

}  // namespace longhaul::train
