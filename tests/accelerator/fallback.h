#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include "tests/accelerator/operation.h"

namespace longhaul::softdev {

/// Returns a tensor of the CPU over the bytes of `t`, which must live as long.
at::Tensor cpu_alias(const at::Tensor& t);

/// Returns the range from the tensor's first to its last element, of which only the bytes
/// of the elements count as moved.
Use use_of(const at::Tensor& t, bool writes);

/// Computes an operation on tensors of the CPU.
using HostKernel = void(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Runs an operation of the device by `kernel`, over the device's memory.
void run_on_device(const c10::OperatorHandle& op, torch::jit::Stack* stack,
                   HostKernel* kernel);
/// Runs an operation of the device by the CPU's kernel.
void cpu_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace longhaul::softdev
