#pragma once

#include "longhaul/optim/kernels/lamb.h"

namespace longhaul::optim {

/// The loops of one instruction set, over checked ranges. `update` is for stochastic
/// rounding; `partial` has room for one LambSums for each block of kNormBlock elements.
struct UpdateLoops {
  void (*adamw)(const AdamWRange& range, const AdamWScalars& s, int64_t update);
  void (*lamb_moments)(const AdamWRange& range, const AdamWScalars& s, float decay,
                       int64_t update, LambSums* partial);
  void (*lamb_apply)(const AdamWRange& range, const AdamWScalars& s, int64_t update);
};

// Each of these functions is in a file of its own with its own compiler flags.
const UpdateLoops& avx2_updates();
const UpdateLoops& avx512_updates();

/// Returns the loops of an instruction set.
const UpdateLoops& updates_of(system::Isa isa);

}  // namespace longhaul::optim
