#pragma once

namespace longhaul {

/// Calls once, on one element and this thread, every function that ATen takes from MKL's
/// vector mathematics, in fp32 and fp64. MKL chooses each one's kernel at its first call;
/// where that comes from several threads at once, one of them may compute its part by a
/// kernel of low accuracy. First thing in main of whatever computes with LibTorch. One
/// or two milliseconds.
void warm_up_vector_math();

}  // namespace longhaul
