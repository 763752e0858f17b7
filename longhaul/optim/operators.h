#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/optim/composite_updates.h"

namespace longhaul::optim {

// The updates of flat memory, on the device of the tensors. If the device has kernels for
// the operators of operator_kernels.h, these make the update, else ATen operations do.
// The host does not wait for the device.

/// Makes an update of AdamW.
void update_adamw(const AdamWTensors& t, const AdamWStep& step);

/// Makes the first pass of LAMB and adds its LambSums to `sums`, fp64 [2].
void update_lamb_moments(const AdamWTensors& t, const AdamWStep& step,
                         const at::Tensor& sums);
/// Makes the second pass of LAMB at step.lr times `rate`, fp64 of one element on the
/// device of the tensors.
void apply_lamb(const AdamWTensors& t, const AdamWStep& step, const at::Tensor& rate);

/// Adds sum_of_squares of each x[i] to into[places[i]], fp64, in the order of i. All x
/// have one dtype and are on one device.
void add_squares(at::TensorList x, at::IntArrayRef places, const at::Tensor& into);

}  // namespace longhaul::optim
