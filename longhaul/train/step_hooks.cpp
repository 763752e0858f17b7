#include "longhaul/train/step_hooks.h"

#include <algorithm>
#include <utility>

#include "longhaul/base/text.h"
#include "longhaul/checkpoint/write/background_saver.h"
#include "longhaul/monitor/profile_table.h"
#include "longhaul/run/files.h"
#include "longhaul/train/save/run_checkpoints.h"

namespace longhaul::train {

StepHooks::StepHooks(const session::Session& session, int attempt, system::Logger& log)
    : session_(session),
      log_(log),
      attempt_(attempt),
      capture_(session.config().debug.capture.value_or(CaptureSettings{}),
               session.layout().activation_place(session.config()),
               session.world().rank(), session.model().description),
      faults_(session.config(), session.world().rank(), attempt),
      profile_(session.device(), session.world().rank(), session.world().ledger()) {
  check_debug(session, log);
}

void StepHooks::begin(int64_t step) {
  const ProfileSection& wanted = session_.config().profile;
  const bool listed = std::ranges::count(wanted.steps, step) > 0;
  if (!listed && (wanted.every == 0 || step % wanted.every != 0)) return;
  session_.world().barrier_wait();  // the timelines of all ranks begin together
  profile_.begin();
  profiled_ = step;
}

std::optional<run::ProfileEvent> StepHooks::end() {
  keys_.look(++ended_, session_.world(), log_);
  if (!profile_.active()) return std::nullopt;
  session::Profile::Result profile = profile_.end();
  if (std::ranges::count(session_.config().profile.steps, profiled_) > 0) {
    const auto ranks = session_.world().gather_strings(profile.timeline);
    if (session_.world().rank() == 0) {
      const fs::path path = session_.config().run.dir / run::trace_file(profiled_);
      parallel::write_trace(path, ranks);
      log_.info("timeline: " + path.string());
    }
  }
  if (session_.world().rank() > 0) return std::nullopt;
  profile.event.step = profiled_;
  for (const std::string& line : monitor::profile_lines(profile.event)) log_.info(line);
  return profile.event;
}

void StepHooks::phase(std::string_view name) {
  profile_.part(name);
  debug_delay(session_.config(), session_.world().rank(), name);
}

parallel::Trace* StepHooks::before_passes(int64_t step) {
  capture_.set_active(capture_.due(step));
  return profile_.trace();
}

void StepHooks::after_passes(int64_t step) {
  if (capture_.active()) write_capture(step);
}

void StepHooks::write_capture(int64_t step) {
  capture_.gradients(session_.flat());
  checkpoint::Snapshot snapshot;
  snapshot.step = step;
  snapshot.tensors = capture_.tensors();
  checkpoint::SaverOptions options =
      saver_options(session_, session_.config().run.dir / run::kCapturesDir, attempt_);
  options.read_back = false;
  const checkpoint::SaveReport report = checkpoint::save_checkpoint(
      std::move(options), std::move(snapshot), session_.world());
  log_.info("capture step {} saved {} in {}", step, human_bytes(report.bytes),
            report.path.string());
  capture_.set_active(false);
}

}  // namespace longhaul::train
