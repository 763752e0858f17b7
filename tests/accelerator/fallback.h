#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include "tests/accelerator/operation.h"

namespace longhaul::softdev {

/// A tensor of the CPU over the same bytes, for as long as `t` lives.
at::Tensor cpu_alias(const at::Tensor& t);

/// The bytes from the tensor's first to its last element; those of its elements move.
Use use_of(const at::Tensor& t, bool writes);

/// What computes an operation, on tensors of the CPU.
using HostKernel = void(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Runs an operation of the device by `kernel`, over the device's memory.
void run_on_device(const c10::OperatorHandle& op, torch::jit::Stack* stack,
                   HostKernel* kernel);
/// The same by the CPU's kernel.
void cpu_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace longhaul::softdev
