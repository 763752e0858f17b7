#pragma once

#include <memory>
#include <vector>

#include "longhaul/data/order/loader.h"

namespace longhaul::data {

/// Returns the phase that a step belongs to, with the weights of that step. Throws
/// ConfigError when the sources do not fit together.
Phase make_phase(const std::vector<WeightedSource>& sources, const LoaderOptions& options,
                 int64_t step);

/// Returns the cursor for a step. Adds `phase` where the cursor's last phase is another
/// stream.
Cursor enter_step(Cursor cursor, const Phase& phase);

/// Returns how often each source is read until the last step. The last phase of `cursor`
/// is the phase of options.first_step, and `first` is the stream of that phase. Throws
/// ConfigError, which names the step, when a source exceeds its max_epochs.
std::vector<SourcePlan> plan_sources(const std::vector<WeightedSource>& sources,
                                     const LoaderOptions& options, const Cursor& cursor,
                                     std::shared_ptr<const PhaseStream> first);

}  // namespace longhaul::data
