#pragma once

// The functions of OpenMP that Torch's headers and our kernels use, for clang-tidy.
// clang-tidy comes without an omp.h, and GCC's omp.h has attributes that it does not
// read.
extern "C" {
int omp_get_max_threads();
int omp_get_num_threads();
int omp_get_thread_num();
int omp_in_parallel();
void omp_set_num_threads(int);
}
