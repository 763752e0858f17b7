#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/optim/adamw_composite.h"

namespace longhaul::optim {

// What an optimizer does to flat memory, on the tensors' device: by the operators of
// LibTorch's dispatcher that operators.cpp describes where the device has them, else in
// ATen operations. Nothing waits for the device.

/// adamw_update.
void update_adamw(const AdamWTensors& t, const AdamWStep& step);

/// lamb_moments; its sums are added to `sums`, fp64 [2].
void update_lamb_moments(const AdamWTensors& t, const AdamWStep& step,
                         const at::Tensor& sums);
/// lamb_apply at step.lr times `rate`: fp64 of one element, on the tensors' device.
void apply_lamb(const AdamWTensors& t, const AdamWStep& step, const at::Tensor& rate);

/// Adds sum_of_squares of each x[i] to into[places[i]], fp64, in their order; all of one
/// dtype and on one device.
void add_squares(at::TensorList x, at::IntArrayRef places, const at::Tensor& into);

}  // namespace longhaul::optim
