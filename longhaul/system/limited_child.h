#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace longhaul::system {

/// What a child process may use.
struct ChildLimits {
  uint64_t memory_bytes = uint64_t{4} << 30;  ///< on top of what this process has now
  uint64_t cpu_seconds = 600;
  uint64_t answer_bytes = uint64_t{4} << 30;
};

/// Runs `work` in a forked child and returns its answer, for reading files that may be
/// hostile. If a hostile file takes over its reader after all, it is confined to a
/// process:
/// - that holds no other file than its answer's pipe and what `work` opens itself;
/// - that cannot gain privileges or write a file (size limit 0);
/// - that cannot start another process, unless the user is root;
/// - whose memory and processor time are limited, and that leaves no core file.
///
/// The caller must check the answer as any outside bytes. The memory limit is
/// RLIMIT_DATA, not RLIMIT_AS: mapping a large file is free. Throws an Error of `work` as
/// the same kind. Throws an InputError that begins with `what` if the child dies (out of
/// memory, time, a signal). The caller should have one thread, and `work` must not touch
/// the terminal or other files.
std::string run_in_limited_child(const std::string& what,
                                 const std::function<std::string()>& work,
                                 const ChildLimits& limits = {});

}  // namespace longhaul::system
