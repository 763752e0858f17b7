#pragma once

#include <algorithm>
#include <cstring>

namespace longhaul::apps {

/// A variable that has to be in the environment before libraries are loaded. It is set
/// unless the user has set it or another variable that decides the same.
struct StartVariable {
  const char* assignment;
  const char* decided_by[2];  ///< who sets one of these has decided; null: no other
};

inline constexpr StartVariable kStartEnvironment[] = {
    // OpenMP's threads spin for this many rounds before they sleep, which takes 50 to 200
    // microseconds, by CPU. The single-threaded stretches of a step are as long.
    {"GOMP_SPINCOUNT=3000", {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}},
    // malloc asks for large pages if the kernel gives them on request: activations are
    // read a row of a few KB at a time, each in a page of its own.
    {"GLIBC_TUNABLES=glibc.malloc.hugetlb=1", {"GLIBC_TUNABLES", nullptr}},
};

/// Returns whether `environment`, "name=value" up to a null, decides the variable. Needs
/// no initialised C library.
inline bool is_decided(const StartVariable& variable, char** environment) {
  return std::ranges::any_of(variable.decided_by, [environment](const char* name) {
    if (name == nullptr) return false;
    const size_t length = std::strlen(name);
    for (char** one = environment; *one != nullptr; ++one) {
      if (std::strncmp(*one, name, length) == 0 && (*one)[length] == '=') return true;
    }
    return false;
  });
}

}  // namespace longhaul::apps
