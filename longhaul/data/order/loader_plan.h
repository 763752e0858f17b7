#pragma once

#include <memory>
#include <vector>

#include "longhaul/data/order/loader.h"

namespace longhaul::data {

/// The phase of a step that begins where the sources' weights are those of its step.
/// ConfigError when the sources do not fit together.
Phase make_phase(const std::vector<WeightedSource>& sources, const LoaderOptions& options,
                 int64_t step);

/// The cursor for a step: a phase is added where the last one is another stream.
Cursor enter_step(Cursor cursor, const Phase& phase);

/// How often each source is read until the last step, from a cursor on whose last phase
/// is that of options.first_step, and `first` its stream. ConfigError when one exceeds
/// its max_epochs, naming the step where it does.
std::vector<SourcePlan> plan_sources(const std::vector<WeightedSource>& sources,
                                     const LoaderOptions& options, const Cursor& cursor,
                                     std::shared_ptr<const PhaseStream> first);

}  // namespace longhaul::data
