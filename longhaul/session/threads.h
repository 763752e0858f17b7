#pragma once

#include <cstdint>
#include <string>

#include "longhaul/comm/communicator.h"

namespace longhaul::session {

/// How many CPU threads a rank computes with, and why.
struct ThreadChoice {
  int threads = 1;
  /// "2 threads per rank, from OMP_NUM_THREADS", and which settings this overrides or
  /// exceeds.
  std::string line;
};

/// Chooses run.threads where it is set, else OMP_NUM_THREADS, else `share`: this rank's
/// share of the CPUs that its job may use. `omp_num_threads` is the variable's value,
/// null where the variable is not set; a value that is no positive number or list of
/// numbers counts as not set. Throws ConfigError where the variable asks for more threads
/// than run.threads may.
ThreadChoice choose_threads(int64_t setting, const char* omp_num_threads, int share);

/// Gives this rank its share of the CPUs of `node`, the ranks of its machine, or `wanted`
/// threads where that is not 0. Returns a line that says what was chosen. Collective over
/// `node`.
std::string set_threads(int64_t wanted, comm::Communicator& node);

/// Says how OpenMP's threads wait for each other in this process. The arguments are the
/// values of OMP_WAIT_POLICY and GOMP_SPINCOUNT, null where a variable is not set.
std::string describe_waiting(const char* wait_policy, const char* spin_count);

}  // namespace longhaul::session
