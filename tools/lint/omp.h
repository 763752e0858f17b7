#pragma once

// What Torch's headers and our kernels use of OpenMP, for clang-tidy: it comes without an
// omp.h, and GCC's has attributes that it does not read.
extern "C" {
int omp_get_max_threads();
int omp_get_num_threads();
int omp_get_thread_num();
int omp_in_parallel();
void omp_set_num_threads(int);
}
