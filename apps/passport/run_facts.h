#pragma once

#include "longhaul/base/json.h"
#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/objects/access.h"

namespace longhaul::apps {

/// Returns what is known of the run that has made weights: {"run", "base"}.
///
/// "run" has the run's identity, step, build, layout and settings, its tokens, sources
/// with fingerprints, tokens and epochs, the chain over its batches and its newest
/// validation losses. It is null if the weights are of no checkpoint; if the checkpoint
/// was imported, it has neither settings nor data.
///
/// "base" says with which weights the run began: their path and what the run recorded of
/// them. If they still lie there as a Hugging Face directory, it has their files with
/// their hashes, as they are now. It is null if the run began with random weights, and if
/// "run" says nothing of it.
Json run_facts(const checkpoint::ModelSource& source);

}  // namespace longhaul::apps
