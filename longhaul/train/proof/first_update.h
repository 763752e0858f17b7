#pragma once

#include "longhaul/system/log.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// Proves, after the first update, that the masters come from [init] weights and this one
/// update. The first update follows from the first moments alone
/// (train/proof/first_update_rule.h). So the moments, and the weights that are read again
/// from the source, say what the masters must be, up to what the optimizer and the dtypes
/// of its state may round. Each rank looks at up to 4 x 16384 elements of each tensor of
/// which the rank owns a part. The moments of the embedding's padding row have to be
/// zero, unless the head is tied to the embedding. Throws InputError that names the worst
/// element. Does nothing where certify_weights (certificate.h) does nothing. Releases
/// TrainingSession::init. `lr` is the learning rate of the update. Collective.
void certify_first_update(TrainingSession& session, double lr, system::Logger& log);

}  // namespace longhaul::train
