#include "longhaul/train/step_hooks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "longhaul/base/text.h"
#include "longhaul/checkpoint/saver.h"
#include "longhaul/run/files.h"
#include "longhaul/train/saves.h"

namespace longhaul::train {

StepHooks::StepHooks(const Session& session, int attempt, Logger& log)
    : session_(session),
      log_(log),
      attempt_(attempt),
      capture_(session.config.debug.capture.value_or(CaptureSettings{}),
               session.layout.activation_place(session.config), session.world->rank()),
      faults_(session.config, session.world->rank(), attempt) {}

void StepHooks::phase(std::string_view name) const {
  debug_delay(session_.config, session_.world->rank(), name);
}

void StepHooks::passes(int64_t step, const std::function<void(parallel::Trace*)>& run) {
  const bool captured = capture_.due(step);
  capture_.set_active(captured);
  run_with_timeline(step, run);
  if (captured) write_capture(step);
}

void StepHooks::run_with_timeline(int64_t step,
                                  const std::function<void(parallel::Trace*)>& run) {
  if (std::ranges::count(session_.config.profile.steps, step) == 0) return run(nullptr);
  session_.world->barrier_wait();  // a common origin
  parallel::Trace trace(session_.world->rank());
  run(&trace);
  const auto ranks = session_.world->gather_strings(trace.json());
  if (session_.world->rank() > 0) return;
  const fs::path path = session_.config.run.dir / trace_file(step);
  parallel::write_trace(path, ranks);
  log_.info("timeline: " + path.string());
}

void StepHooks::write_capture(int64_t step) {
  capture_.gradients(*session_.flat);
  checkpoint::Snapshot snapshot;
  snapshot.step = step;
  snapshot.tensors = capture_.tensors();
  const checkpoint::SaveReport report = checkpoint::save_checkpoint(
      saver_options(session_, session_.config.run.dir / kCapturesDir, attempt_),
      std::move(snapshot), *session_.world);
  log_.info(fmt::format("capture step {} saved {} in {}", step,
                        human_bytes(static_cast<double>(report.bytes)),
                        report.path.string()));
  capture_.set_active(false);
}

}  // namespace longhaul::train
