#pragma once

#include <cstdint>
#include <memory>

#include "longhaul/optim/param_groups.h"
#include "longhaul/rehearsal/group.h"
#include "longhaul/rehearsal/rehearse.h"
#include "longhaul/session/layout.h"

namespace longhaul::rehearsal {

/// Returns the device that install_device() makes.
inline at::Device fake_device() { return at::Device(at::kPrivateUse1, 0); }

/// A rank that has joined its groups.
struct JoinedRank {
  std::shared_ptr<Player> player;
  std::shared_ptr<comm::Communicator> world;
  std::unique_ptr<session::Layout> layout;
};

/// Builds the rank's part of the run and trains its first steps. `config` has the batch
/// that is played. Fills what the rank did in. Call it on a thread of its own: what a
/// process keeps, a thread keeps here.
void play(const RunConfig& config, const ModelConfig& model,
          const optim::ParamGroups& groups, int64_t steps, JoinedRank joined,
          PlayedRank& out);

/// Builds the rank's part of the run on a device that computes, and does there what a run
/// does: its first steps, a validation, a text. Call it on a thread of its own.
void compute(const RunConfig& config, const ModelConfig& model,
             const optim::ParamGroups& groups, int64_t steps, const OnDevice& on,
             JoinedRank joined);

}  // namespace longhaul::rehearsal
