#pragma once

namespace longhaul::apps {

/// What has to be in the environment before libraries are loaded, for those who have not
/// decided otherwise.
struct StartVariable {
  const char* assignment;
  const char* decided_by[2];  ///< who sets one of these has decided; null: no other
};

inline constexpr StartVariable kStartEnvironment[] = {
    // How long OpenMP's threads spin before they sleep: some 50 to 200 microseconds, by
    // CPU, as long as the single-threaded stretches of a step.
    {"GOMP_SPINCOUNT=3000", {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}},
    // malloc asks for large pages where the kernel gives them on request: activations are
    // read a row of a few KB at a time, each in a page of its own.
    {"GLIBC_TUNABLES=glibc.malloc.hugetlb=1", {"GLIBC_TUNABLES", nullptr}},
};

}  // namespace longhaul::apps
