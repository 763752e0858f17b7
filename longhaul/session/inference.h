#pragma once

#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/session/session.h"

namespace longhaul::session {

// Runs a trained model forward only, in any layout of a run.

/// Builds a session that is only run forward. Each rank reads its own slices of the
/// weights, in the compute dtype; there are no gradients, no optimizer and no data. The
/// settings that count are model.config, [parallel], precision.compute, run.device,
/// run.fused, batch (which has to divide over the ranks, as for a run) and data.seq_len,
/// the longest sequence. `source` has the model's parameters (checkpoint::as_parameters,
/// check_weights). Throws ConfigError for settings that do not fit, and InputError, the
/// same on every rank, for weights that cannot be read. Collective.
Session load_for_inference(const RunConfig& config,
                           const checkpoint::WeightsSource& source,
                           std::shared_ptr<comm::Communicator> world);

/// Adds up what the ranks of a replica have summed over their positions and stages; the
/// result is the same on all ranks of the replica. Collective over cp and pp.
std::vector<double> sum_of_replica(const Session& session, std::vector<double> sums);

/// Computes the loss sums of these batches: the infer::LossOf of a session. The batches
/// hold whole sequences, of which each rank takes its positions. The result is the same
/// on all ranks of a replica. `runner` is of this session. Collective.
std::vector<double> loss_sums(const Session& session, StageRunner& runner,
                              std::vector<data::TokenBatch>& batches);

/// Returns the first vocabulary column of this rank's logits, of which the rank has
/// `columns`; the ranks of a tp group have the columns side by side. Collective over the
/// ranks with the head.
int64_t first_column(const Session& session, int64_t columns);

/// Returns the logits [..., V] in fp32 on the host, of which each rank of tp has `part`.
/// Collective over tp.
at::Tensor whole_logits(const Session& session, const at::Tensor& part);

/// Returns the bytes of weights that the rank with most of them holds now. Collective.
int64_t most_weight_bytes(const Session& session);

}  // namespace longhaul::session
