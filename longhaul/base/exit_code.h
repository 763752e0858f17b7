#pragma once

namespace longhaul {

// The exit codes of a process that has neither succeeded (0) nor failed (1).
inline constexpr int kExitTemporary = 75;  ///< the command may go on later
/// On this node the run's directory is missing, cannot be written, or does not hold the
/// run; another node is to be asked. No batch script sees this code.
inline constexpr int kExitNotHere = 76;
inline constexpr int kExitSuperseded = 77;  ///< another supervisor has taken the run over
inline constexpr int kExitSettings = 78;    ///< a setting or an input is wrong
/// A run was stopped by request or by a rule: it has saved and not finished, and only a
/// person is to start it again.
inline constexpr int kExitStopped = 79;
/// Nobody reads the result any more. A shell shows this code for any program that SIGPIPE
/// ends.
inline constexpr int kExitUnread = 141;

}  // namespace longhaul
