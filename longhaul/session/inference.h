#pragma once

#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/infer/generate.h"
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

/// Returns the logits [V] in fp32 on the host, of which each rank of tp has `part`.
/// Collective over tp.
at::Tensor whole_logits(const Session& session, const at::Tensor& part);

/// Returns the bytes of weights that the rank with most of them holds now. Collective.
int64_t most_weight_bytes(const Session& session);

/// Continues one sequence on all ranks of a session whose data is not split: cp is 1, and
/// sequence parallelism is off. All ranks of dp, which are there for their experts,
/// continue the same sequence. Each rank keeps the keys and values of its heads and
/// layers; the first rank of the last stage chooses each token and sends it to all
/// ranks.
class SequenceRunner {
 public:
  /// Makes room for up to `capacity` positions. `session` must outlive this object.
  SequenceRunner(const Session& session, infer::SamplingOptions options,
                 int64_t capacity);
  /// Returns the next token, the same on every rank: the session's infer::NextId.
  /// Collective.
  int64_t next(const std::vector<int64_t>& ids, int64_t step);

 private:
  /// Keeps the logits of the last position of a pass.
  class Head : public ForwardObserver {
   public:
    void head(const models::Model& model, const nn::Tensors& hidden,
              const nn::ForwardContext& context) override;
    at::Tensor logits;  ///< this rank's part of [V]; undefined where the rank has no head
  };
  StageOptions options_of_stage();

  const Session& session_;
  infer::SamplingOptions options_;
  std::vector<nn::KvCache> caches_;  ///< one for each chunk
  Head head_;
  StageRunner runner_;
};

}  // namespace longhaul::session
