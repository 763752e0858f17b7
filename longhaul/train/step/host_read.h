#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "longhaul/train/session/session_layout.h"

namespace longhaul::train {

/// The values of fp64 tensors on the layout's device, which the host needs now: on a
/// device copied together and waited for once, while its groups are watched, so that a
/// rank that is lost ends the wait with an error that names what was under way.
std::vector<std::vector<double>> read_on_host(const Layout& layout,
                                              const std::vector<at::Tensor>& tensors);

}  // namespace longhaul::train
