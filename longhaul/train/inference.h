#pragma once

#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/infer/generate.h"
#include "longhaul/train/session/session.h"

namespace longhaul::train {

// A model that is only run forward, in any layout of a run.

/// The session of such a model: each rank reads its own slices of the weights, in the
/// compute dtype, and nobody holds gradients, an optimizer or data. Of the settings count
/// model.config, [parallel], precision.compute, run.device, run.fused, batch (which has
/// to divide over the ranks, as of a run) and data.seq_len, the longest sequence.
/// `source` has the model's parameters (checkpoint::as_parameters, check_weights).
/// ConfigError as build_session; InputError, the same on every rank, for weights that
/// cannot be read. Collective.
Session load_for_inference(const RunConfig& config,
                           const checkpoint::WeightsSource& source,
                           std::shared_ptr<comm::Communicator> world);

/// infer::LossOf of a session: whole sequences, of which each rank takes its positions;
/// the same on all ranks of a replica. `runner` is of this session. Collective.
std::vector<double> loss_sums(const Session& session, StageRunner& runner,
                              std::vector<data::TokenBatch>& batches);

/// Bytes of weights that the rank with most of them holds now. Collective.
int64_t most_weight_bytes(const Session& session);

/// Continues one sequence on all ranks of a session, whose data is not split (dp and cp
/// are 1, tokens are whole between regions): each has the keys and values of its heads
/// and layers, the first rank of the last stage chooses, and all hear of it.
class SequenceRunner {
 public:
  /// Of up to `capacity` positions. `session` must outlive this.
  SequenceRunner(const Session& session, infer::SamplingOptions options,
                 int64_t capacity);
  /// infer::NextId, the same on every rank. Collective.
  int64_t next(const std::vector<int64_t>& ids, int64_t step);

 private:
  /// Keeps the logits of the last position.
  class Head : public ForwardObserver {
   public:
    void head(const models::Model& model, const nn::Tensors& hidden,
              const nn::ForwardContext& context) override;
    at::Tensor logits;  ///< this rank's part of [V]; undefined without the head
  };
  StageOptions options_of_stage();
  at::Tensor whole_logits() const;

  const Session& session_;
  infer::SamplingOptions options_;
  std::vector<nn::KvCache> caches_;  ///< by chunk
  Head head_;
  StageRunner runner_;
};

}  // namespace longhaul::train
