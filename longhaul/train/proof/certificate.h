#pragma once

#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/system/log.h"
#include "longhaul/train/session/session.h"

namespace longhaul::train {

/// How near a loaded model has to be to its source, for a compute dtype of unit roundoff
/// u. A layer of the loaded model is compared with the same layer of the source given the
/// same input x; of each token, with result s against r:
///     |s - r| <= layer |r - x| + 2 u |r|          (norms over the hidden features)
/// The first term allows rounding inside the layer, in proportion to what the layer adds,
/// so that it does not depend on the depth; the second allows that both additions to the
/// residual stream are rounded to the compute dtype. An embedding that norms its rows is
/// a layer that is given 0, another one has the second term alone. Of each logit s
/// against r, the head being given the same input:
///     |s - r| <= logit rms(r) + 2 u |r|           (rms over all logits compared)
/// and of the logits of both models run from the tokens on, per position:
///     |s - r| <= layer sqrt(layers + 1) |r|       (roundings of layers are independent)
struct Tolerance {
  double roundoff = 0.0;
  double layer = 0.0;
  double logit = 0.0;
};

/// fp32: u = 2^-24, layer 1e-4, logit 1e-4. bf16: u = 2^-8, layer 5e-2, logit 1e-1.
Tolerance certificate_tolerance(DType compute);

/// Compares the model that was loaded from [init] weights with those files, evaluated
/// anew (SourceModel) with the settings of their own config.json and the run's
/// model.override, on a fixture: up to 128 tokens from all over the vocabulary, at
/// positions from all over data.seq_len. The loaded model runs as in training: in its
/// layout, pipeline and kernels, on every replica. Compared are the result of each layer,
/// the logits of up to 16 positions (more where tp is larger), and the cross-entropy that
/// the loss head makes of targets from all over the vocabulary. One line says how near
/// they are; a difference beyond certificate_tolerance throws InputError that names the
/// first layer that differs and fields of config.json that do. Does nothing where
/// [init] certificate is false, or Session::init is null. After share_weights.
/// Collective.
void certify_weights(const Session& session, Logger& log);

}  // namespace longhaul::train
