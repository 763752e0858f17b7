#include "longhaul/train/start/data_feed.h"

#include <chrono>

#include "longhaul/comm/ledger.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::train {
namespace {

/// How often a rank that waits for its batch says that it lives, and looks for signals.
constexpr auto kDataLook = std::chrono::milliseconds(250);
/// Seconds of waiting for a batch from which on the log tells of it.
constexpr double kLongDataWait = 5.0;

}  // namespace

data::LoaderOptions loader_options(const session::Session& session, bool prefetch,
                                   int64_t first_step, int64_t last_step) {
  const RunConfig& config = session.config();
  const comm::Communicator& dp = session.mesh().dp();
  data::LoaderOptions options;
  options.seed = static_cast<uint64_t>(config.run.seed);
  options.shuffle = config.data.shuffle;
  options.global_size = config.batch.global_size;
  options.micro_size = config.batch.micro_size;
  options.data_rank = dp.rank();
  options.data_size = dp.size();
  options.prefetch = prefetch;
  options.first_step = first_step;
  options.last_step = last_step;
  for (const WeightsFrom& change : config.data.changes) {
    options.changes.push_back({change.step, change.weights});
  }
  return options;
}

data::StepBatch* next_batch(const TrainingSession& session, data::Loader& loader,
                            int64_t step, system::Logger& log,
                            const std::function<bool()>& must_end,
                            const std::function<void()>& restart) {
  const system::Stopwatch watch;
  const auto waits = [&] {
    const bool mine = !loader.ready(kDataLook);
    return session.data().fetches_shards ? session.world().any(mine) : mine;
  };
  const auto has_read = [&] {
    while (waits()) {
      if (run::RankRecord* record = session.world().ledger().record()) record->moved();
      if (session.data().fetches_shards && must_end()) return false;
    }
    return true;
  };
  if (restart) {
    if (!has_read()) return nullptr;
    restart();
  }
  if (!has_read()) return nullptr;
  data::StepBatch& batch = loader.next();
  if (watch.seconds() >= kLongDataWait) {
    log.info("step {} waited {:.1f} s for its data", step, watch.seconds());
  }
  return &batch;
}

ShardWaitsEnd::~ShardWaitsEnd() {
  if (session_.data().fetches_shards) session_.objects().store()->stop();
}

}  // namespace longhaul::train
