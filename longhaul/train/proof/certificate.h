#pragma once

#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/system/log.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// How near a loaded model has to be to its source, for a compute dtype of unit roundoff
/// u. A layer of the loaded model is compared with the same layer of the source for the
/// same input x. For each token, with result s against r:
///     |s - r| <= layer |r - x| + 2 u |r|          (norms over the hidden features)
/// The first term allows rounding inside the layer, in proportion to what the layer adds,
/// so that the bound does not depend on the depth. The second term allows that both
/// additions to the residual stream are rounded to the compute dtype. An embedding that
/// norms its rows counts as a layer with input 0; any other embedding is allowed the
/// second term alone. For each logit s against r, with the same input to the head:
///     |s - r| <= logit rms(r) + 2 u |r|           (rms over all logits compared)
/// For the logits of both models run from the tokens on, per position:
///     |s - r| <= max(layer sqrt(layers + 1), e) |r|   (roundings are independent)
/// where e follows what each layer may be off through the layers behind it: the source
/// tells how much each enlarges the difference between the two models' inputs.
struct Tolerance {
  double roundoff = 0.0;
  double layer = 0.0;
  double logit = 0.0;
};

/// Returns the tolerance of a compute dtype. fp32: u = 2^-24, layer 1e-4, logit 1e-4.
/// bf16: u = 2^-8, layer 5e-2, logit 1e-1.
Tolerance certificate_tolerance(format::DType compute);

/// Compares the model that was loaded from [init] weights with those files. The files are
/// evaluated anew (SourceModel), with the settings of their own config.json and the run's
/// model.override, on a fixture: up to 128 tokens from all over the vocabulary, at
/// positions from all over data.seq_len. The loaded model runs as in training: in its
/// layout, pipeline and kernels, on every replica. Compared are the result of each layer,
/// the logits of up to 16 positions (more where tp is larger), and the cross-entropy that
/// the loss head computes for targets from all over the vocabulary. Logs in one line how
/// near the models are. Throws InputError where a difference exceeds
/// certificate_tolerance; the error names the first layer that differs, and differing
/// fields of config.json. Does nothing where [init] certificate is false, or
/// TrainingSession::init is null. Must be called after share_weights. Collective.
void certify_weights(const TrainingSession& session, system::Logger& log);

}  // namespace longhaul::train
