#pragma once

#include <functional>

#include "longhaul/base/file.h"

namespace longhaul::apps {

/// Returns a variable's value, or null.
using Environment = std::function<const char*(const char*)>;

/// Returns the directory in which mpirun keeps its sockets and files while it runs.
fs::path mpirun_directory(const Environment& environment);

/// Throws if mpirun could not make files in `dir`: TemporaryError if only disk space is
/// missing, else ConfigError that says why. Makes `dir` if it is absent, as mpirun would.
void check_mpirun_directory(const fs::path& dir);

/// Throws ConfigError if a user without an entry in /etc/passwd has no HOME, since mpirun
/// then crashes, or needs ssh, since ssh refuses such a user. `known` says whether there
/// is an entry.
void check_mpirun_user(const Environment& environment, bool known, bool over_ssh);

/// Throws ConfigError if this machine cannot reach itself at 127.0.0.1, the address at
/// which mpirun and its ranks talk to each other.
void check_loopback();

/// Checks all that mpirun needs of this machine, before anything is started. Throws
/// ConfigError, or TemporaryError if only disk space is missing.
void check_launch_ground(bool over_ssh);

}  // namespace longhaul::apps
