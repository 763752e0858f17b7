#include "longhaul/system/start_watch.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::system {
namespace {

constexpr double kBetweenLooks = 0.05;

}  // namespace

StartWatch::StartWatch(int exit_code, double grace_seconds,
                       std::function<void(int signal)> say)
    : looks_(kBetweenLooks, [exit_code, grace_seconds, say = std::move(say),
                             since = std::optional<Stopwatch>()]() mutable {
        const int signal = raised_signal().number;
        if (signal == 0) {  // a signal before may have been a RehearsedSignal
          since.reset();
          return;
        }
        if (!since) since.emplace();
        if (since->seconds() < grace_seconds) return;
        say(signal);
        ::_exit(exit_code);
      }) {}

}  // namespace longhaul::system
