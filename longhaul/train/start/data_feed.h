#pragma once

#include <functional>

#include "longhaul/data/order/loader.h"
#include "longhaul/system/log.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// Ends the wait of a loader's thread for a shard that nobody reads any more. Declared
/// behind the loader, it goes first.
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

/// Returns the loader's next step. While it is read the rank's record moves, so that
/// nobody takes the wait for a hang. The log tells of a long wait. Where shards are
/// fetched during training, all ranks wait until each of them has its batch, and ask
/// `must_end` several times a second. Once it says true on all ranks, they get null.
/// `restart`, where it is set, is called first, as soon as what the loader reads has been
/// read in the same way; all ranks set it, or none. Collective where shards are fetched.
data::StepBatch* next_batch(const TrainingSession& session, data::Loader& loader,
                            int64_t step, system::Logger& log,
                            const std::function<bool()>& must_end,
                            const std::function<void()>& restart = {});

}  // namespace longhaul::train
