#include "tests/faults/tiny_run.h"

#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/run/run_lock.h"
#include "tests/faults/tiny_checkpoint.h"
#include "tests/support/fake_ranks.h"

namespace longhaul::faults {

using checkpoint::SaveReport;

int run_tiny(const TinyRun& run,
             const std::function<void(const SaveReport&, int attempt)>& ended) {
  const run::RunLock lock = run::RunLock::acquire(run.run_dir);
  const int attempt = lock.attempt();
  comm::run_fake_ranks(run.ranks, [&](std::shared_ptr<comm::Communicator> world) {
    const bool first = world->rank() == 0;
    checkpoint::SaverOptions options;
    options.dir = run.run_dir / "checkpoints";
    options.attempt = attempt;
    options.build = "faults";
    options.layout = {{"world", run.ranks}};
    options.lock = first ? &lock : nullptr;
    options.keep = run.keep;
    checkpoint::BackgroundSaver saver(options, *world);
    const auto tell = [&](const std::optional<SaveReport>& report) {
      if (report && first) ended(*report, attempt);
    };
    for (const int64_t step : run.steps) {
      const TinyShare share = tiny_share(step, attempt, world->rank(), run.ranks);
      checkpoint::Snapshot snapshot;
      snapshot.step = step;
      snapshot.tensors = share.tensors;
      snapshot.state = tiny_state(step, attempt);
      snapshot.files = tiny_files();
      std::optional<SaveReport> before;
      try {
        saver.start(snapshot, before);
      } catch (
          const TemporaryError& error) {  // thrown on all ranks; training goes on as well
        SaveReport report;
        report.step = step;
        report.error = error.what();
        tell(before);
        tell(report);
        continue;
      }
      tell(before);
      tell(run.overlap ? saver.poll() : saver.wait());
    }
    tell(saver.wait());
  });
  return attempt;
}

}  // namespace longhaul::faults
