#pragma once

#include <sys/types.h>

#include <map>
#include <string>

namespace longhaul::cluster {

/// Where every thread of another process of ours stands, as text:
///
///     process 4711 (longhaul), 2 threads
///     thread 4711 longhaul: sleeping, in futex_wait_queue
///         pthread_cond_wait@@GLIBC_2.3.2 (libc.so.6)
///         longhaul::comm::Engine::wait() (longhaul)
///     ...
///
/// A thread stands still only while it is looked at, one after the other; a process that
/// was stopped by SIGSTOP stays stopped. All is over after `deadline_seconds`, with what
/// was found until then. Where tracing is not allowed the kernel's own view remains, and
/// the text says what would allow it. Never throws for what the process is or does.
///
/// The work is done by a forked child, which is killed at the deadline; so a damaged
/// process, or a library's bug, costs no more. Not from a process with other threads that
/// may hold locks.
std::string stack_traces(pid_t pid, double deadline_seconds = 5.0);

/// Those of several ranks, each under its number.
std::string describe_stacks(const std::map<int, std::string>& stacks);

}  // namespace longhaul::cluster
