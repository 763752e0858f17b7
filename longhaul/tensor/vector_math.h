#pragma once

namespace longhaul::tensor {

/// Calls every function that ATen takes from MKL's vector mathematics once, on one
/// element and this thread, in fp32 and fp64. MKL chooses the kernel of a function at its
/// first call; if several threads make the first call at once, one of them may compute
/// its part by a kernel of low accuracy. Every program that computes with LibTorch calls
/// this first in main(). The call takes one or two milliseconds.
void warm_up_vector_math();

}  // namespace longhaul::tensor
