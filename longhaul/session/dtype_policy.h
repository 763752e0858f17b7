#pragma once

#include "longhaul/config/run_config.h"
#include "longhaul/tensor/scalar_type.h"

namespace longhaul::session {

/// Returns the dtypes that [precision] names.
tensor::DTypePolicy make_policy(const PrecisionSection& p);

}  // namespace longhaul::session
