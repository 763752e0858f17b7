#pragma once

#include <functional>

#include "longhaul/data/order/loader.h"
#include "longhaul/system/log.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// Ends, when it is destroyed, the wait of the loader's thread for a shard that nobody
/// reads any more. Declared after the loader, it is destroyed before the loader.
class ShardWaitsEnd {
 public:
  explicit ShardWaitsEnd(const TrainingSession& session) : session_(session) {}
  ~ShardWaitsEnd();
  ShardWaitsEnd(const ShardWaitsEnd&) = delete;
  ShardWaitsEnd& operator=(const ShardWaitsEnd&) = delete;

 private:
  const TrainingSession& session_;
};

/// Returns the options for the loader of this rank's sequences. `last_step` is the last
/// step of the whole run, 0 where it is not known.
data::LoaderOptions loader_options(const session::Session& session, bool prefetch,
                                   int64_t first_step = 1, int64_t last_step = 0);

/// Returns the loader's next step. While the data are read, the rank's record shows
/// progress, so that nobody takes the wait for a hang. The log tells of a long wait.
/// Where shards are fetched during training, all ranks wait until each of them has its
/// batch, and call `must_end` several times a second. Once `must_end` returns true, which
/// it does on all ranks, the result is null. `restart`, where it is set, is called before
/// the step is read, as soon as the loader's read under way has ended. All ranks set
/// `restart`, or none. Collective where shards are fetched.
data::StepBatch* next_batch(const TrainingSession& session, data::Loader& loader,
                            int64_t step, system::Logger& log,
                            const std::function<bool()>& must_end,
                            const std::function<void()>& restart = {});

}  // namespace longhaul::train
