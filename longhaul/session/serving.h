#pragma once

#include <functional>
#include <string>

#include "longhaul/serve/sequence_queue.h"
#include "longhaul/session/session.h"

namespace longhaul::session {

/// Scores and continues the sequences of a queue, a batch after the other, until
/// `end_reason` says why rank 0 ends. `queue` is rank 0's, and null on the other ranks.
/// What has come first is computed first, together with what waits and fits
/// (serve::take_batch); what comes later waits for the whole batch. `end_reason` is asked
/// on rank 0, behind each token of a batch too, and returns an empty text while the
/// server goes on. What is not complete when it ends stays so. Throws
/// TemporaryError if longhaul-serve ends, or a rank. Collective.
void serve_sequences(const Session& session, serve::SequenceQueue* queue,
                     const serve::BatchLimits& limits,
                     const std::function<std::string()>& end_reason);

}  // namespace longhaul::session
