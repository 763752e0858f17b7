#pragma once

namespace longhaul::apps {

/// How long OpenMP's threads spin before they sleep: some 50 to 200 microseconds, by CPU,
/// as long as the single-threaded stretches of a step.
inline constexpr const char* kSpinCount = "GOMP_SPINCOUNT=3000";
/// Who sets one of these has decided.
inline constexpr const char* kSpinDecided[] = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"};

}  // namespace longhaul::apps
