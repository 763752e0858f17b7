#pragma once

#include <cstdint>
#include <functional>

namespace longhaul::system {

/// Runs work(0) to work(count - 1) at the same time, work(0) on the calling thread and
/// the others on a thread each, and waits for all. When all have ended it throws the
/// error of the lowest number whose work has failed. No work begins before all threads
/// have started. If the system refuses a thread it throws TemporaryError, which names the
/// limits. Signals stay with the main thread.
void run_on_threads(int count, const std::function<void(int)>& work);

/// Calls work(0) to work(items - 1), each once, on up to `threads` threads, in ascending
/// order as threads get free. After a failure no more are begun; the failure is thrown
/// when all that were begun have ended.
void share_among_threads(int64_t items, int threads,
                         const std::function<void(int64_t)>& work);

}  // namespace longhaul::system
