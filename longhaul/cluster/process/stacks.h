#pragma once

#include <sys/types.h>

#include <map>
#include <string>

namespace longhaul::cluster {

/// Describes where every thread of another process of this user stands:
///
///     process 4711 (longhaul), 2 threads
///     thread 4711 longhaul: sleeping, in futex_wait_queue
///         pthread_cond_wait@@GLIBC_2.3.2 (libc.so.6)
///         longhaul::comm::Engine::wait() (longhaul)
///     ...
///
/// Stops one thread after the other, each only while it is looked at; a process that was
/// stopped by SIGSTOP stays stopped. Ends after `deadline_seconds` with what was found
/// until then. If tracing is not allowed, gives the kernel's own view and says what would
/// allow tracing. Never throws for what the process is or does.
///
/// A forked child does the work and is killed at the deadline, so that a damaged process
/// or a bug of a library harms that child only. Must not be called in a process whose
/// other threads may hold locks.
std::string stack_traces(pid_t pid, double deadline_seconds = 5.0);

/// Returns the traces of several ranks as one text, each trace under its rank's number.
std::string describe_stacks(const std::map<int, std::string>& stacks);

}  // namespace longhaul::cluster
