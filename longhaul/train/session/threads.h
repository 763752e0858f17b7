#pragma once

#include <cstdint>
#include <string>

namespace longhaul::train {

/// How many CPU threads a rank computes with, and why.
struct ThreadChoice {
  int threads = 1;
  /// "2 threads per rank, from OMP_NUM_THREADS", and what that overrides or exceeds.
  std::string line;
};

/// run.threads where it is set, else OMP_NUM_THREADS, else `share`: this rank's share of
/// the CPUs that its job may use. `omp_num_threads`: the variable's value, null where it
/// is not set; what is no positive number or list of them counts as not set.
ThreadChoice choose_threads(int64_t setting, const char* omp_num_threads, int share);

/// How OpenMP's threads wait for each other in this process, as OMP_WAIT_POLICY and
/// GOMP_SPINCOUNT say, whose values these are (null: not set).
std::string describe_waiting(const char* wait_policy, const char* spin_count);

}  // namespace longhaul::train
