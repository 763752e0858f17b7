#pragma once

namespace longhaul {

// How a process ends, where it is more than 0 (done) and 1 (failed).
inline constexpr int kExitTemporary = 75;   ///< the same command may go on later
inline constexpr int kExitSuperseded = 77;  ///< another supervisor has taken the run over
inline constexpr int kExitSettings = 78;    ///< a setting or an input is wrong
/// Stopped by request or by a rule: saved and not finished, and nobody is to start it
/// again by himself.
inline constexpr int kExitStopped = 79;

}  // namespace longhaul
