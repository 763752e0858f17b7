#pragma once

#include <functional>
#include <memory>
#include <string>

#include "longhaul/comm/communicator.h"
#include "longhaul/config/load.h"
#include "longhaul/data/bert/shard_reader.h"
#include "longhaul/objects/access.h"
#include "longhaul/train/rehearsal.h"

namespace longhaul::train {

enum class TrainEnd {
  Done,         ///< all steps that this start was to do are done
  Interrupted,  ///< a signal asked to stop; what is new has been saved
  Stopped,      ///< the file STOP or a rule ended it: no new start is to follow by itself
};

struct TrainResult {
  int64_t step = 0;  ///< the last step that was executed
  TrainEnd end = TrainEnd::Done;
};

/// Whether a run saves checkpoints. `No` is for measurements, which save nothing at the
/// end either.
enum class Saving { Yes, No };

/// Trains as a configuration says: sets up, continues from the newest checkpoint or from
/// first weights, runs the loop, saves. A signal that a SignalWatch has noted, or a file
/// in the run's directory (control_files.h), ends or pauses the run between steps, or
/// between batches of a validation. `on_ready` is called before the first step. `shards`
/// is used until then: rank 0's reader of HDF5, made before threads and MPI where
/// needs_shard_reader() (packed_data.h) asks for one. `objects` reads the addresses of
/// the settings. `expected` is the run that must be found, if one is known
/// (RunStart). `rehearse` says whether the start first does what a run does late
/// (rehearsal.h). Throws longhaul::Error; checkpoints that were committed before
/// stay valid. Every rank of `world` has to call this with the same configuration.
/// Collective.
TrainResult run_training(const LoadedConfig& loaded,
                         std::shared_ptr<comm::Communicator> world,
                         const std::function<void()>& on_ready = {},
                         data::ShardReader* shards = nullptr, Saving saving = Saving::Yes,
                         const objects::Access& objects = {},
                         const std::string& expected = {},
                         Rehearse rehearse = Rehearse::No);

}  // namespace longhaul::train
