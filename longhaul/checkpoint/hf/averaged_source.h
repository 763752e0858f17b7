#pragma once

#include <vector>

#include "longhaul/checkpoint/hf/hf_forms.h"

namespace longhaul::checkpoint {

/// Returns the mean of several checkpoints' master weights, which are added in fp64 and
/// rounded once. Its tensors are fp32, and its other files are those of the last
/// checkpoint. Throws InputError for checkpoints with other tensors, or with another
/// value of a field of config.json that changes the result. Throws it for checkpoints of
/// an adapter too, since the product of two means is not the mean of the products.
SharedSource averaged(std::vector<SharedSource> checkpoints);

}  // namespace longhaul::checkpoint
