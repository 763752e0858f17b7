#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "apps/verbs.h"
#include "longhaul/base/clock.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/monitor/plain_text.h"
#include "longhaul/monitor/run_view.h"
#include "longhaul/monitor/screen.h"
#include "longhaul/monitor/terminal_writer.h"
#include "longhaul/run/run_status.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/terminal.h"

namespace longhaul::apps {
namespace {

using monitor::RunFiles;
using monitor::RunView;
using monitor::Terminal;

/// Seconds between two lines of output that is no terminal, whose screen could be
/// redrawn.
constexpr double kLineSeconds = 10.0;
constexpr double kScreenSeconds = 1.0;
constexpr size_t kPlainWidth = 120;

struct WatchCall {
  std::string run;
  bool once = false;
  bool json = false;
  bool until_end = false;
  double interval = 0.0;  ///< 0: as fits the output
};

/// Returns how the run stands now. A file that cannot be read for a moment (another
/// machine's disk) is a note, not the end.
RunView look(RunFiles& run, bool& changed) {
  std::string problem;
  try {
    changed = run.refresh();
  } catch (const Error& error) {
    problem = monitor::plain_text(error.what());
  }
  RunView view = monitor::make_view(run, system_time());
  if (!problem.empty()) view.notes.push_back(problem);
  return view;
}

/// Returns 0 if the run got to its end and 79 if the file STOP or a rule ended it.
/// It returns 75 if something else stopped the run, which can go on, and 1 if the
/// run failed or was killed.
int exit_code_of(const RunView& view) {
  if (view.state == run::RunStatus::kDone) return 0;
  if (view.state != run::RunStatus::kStopped) return 1;
  return view.on_request ? kExitStopped : kExitTemporary;
}

void print_once(const WatchCall& options, RunFiles& run, const RunView& view) {
  if (options.json) {
    fmt::print("{}\n", json_text(monitor::to_json(view), options.once ? 2 : -1));
  } else if (options.once) {
    const size_t width = Terminal::available() ? Terminal::window().width : kPlainWidth;
    for (const std::string& line : monitor::draw_screen(
             view, run.events(), {width, 0}, system::wants_colour(STDOUT_FILENO))) {
      fmt::print("{}\n", line);
    }
  } else {
    fmt::print("{}\n", monitor::status_line(view));
  }
  std::fflush(stdout);
}

/// Sleeps in pieces, so that a signal ends it soon.
void wait(double seconds, const system::SignalWatch& signals) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (signals.raised() == 0 && std::chrono::steady_clock::now() < end) {
    const std::chrono::duration<double> left = end - std::chrono::steady_clock::now();
    monitor::sleep_seconds(std::clamp(left.count(), 0.0, 0.2));
  }
}

int follow_with_lines(const WatchCall& options, RunFiles& run, RunView view) {
  const system::SignalWatch signals;
  const double interval = options.interval > 0.0 ? options.interval : kLineSeconds;
  while (true) {
    print_once(options, run, view);
    if (options.until_end && view.ended) return exit_code_of(view);
    bool changed = false;
    // Without --json, a line is printed only when something has changed. A program that
    // reads JSON gets a line each time.
    do {
      wait(interval, signals);
      if (signals.raised() != 0) return 0;
      const std::string before = view.state;
      view = look(run, changed);
      changed = changed || view.state != before;
    } while (!changed && !options.json);
  }
}

int follow_on_terminal(const WatchCall& options, RunFiles& run, RunView view) {
  const system::SignalWatch signals;
  const double interval = options.interval > 0.0 ? options.interval : kScreenSeconds;
  int exit_code = 0;
  {
    Terminal terminal;
    while (signals.raised() == 0) {
      terminal.draw(monitor::draw_screen(view, run.events(), Terminal::window(),
                                         system::wants_colour(STDOUT_FILENO)));
      if (options.until_end && view.ended) {
        exit_code = exit_code_of(view);
        break;
      }
      const char key = terminal.wait_key(interval);
      if (key == 'q' || key == 'Q') break;
      bool changed = false;
      view = look(run, changed);
    }
  }
  // The terminal's alternate screen is closed, and what it showed is gone, so a last line
  // is printed here.
  fmt::print("{}\n", monitor::cut_to_columns(monitor::status_line(view), 400));
  return exit_code;
}

/// Waits until the run has begun; returns false if a signal came before.
bool wait_for_run(const WatchCall& options) {
  if (options.once || !monitor::may_become_run(options.run)) return true;
  const system::SignalWatch signals;
  fmt::print(stderr,
             "waiting for {}: nothing of a run is there yet; it appears when training "
             "starts (Ctrl-C ends this)\n",
             options.run);
  while (monitor::may_become_run(options.run)) {
    wait(kScreenSeconds, signals);
    if (signals.raised() != 0) return false;
  }
  return true;
}

int run_watch(const WatchCall& options) {
  if (!wait_for_run(options)) return 0;
  RunFiles run(options.run);
  bool changed = false;
  const RunView view = look(run, changed);
  if (options.once) {
    print_once(options, run, view);
    return options.until_end && view.ended ? exit_code_of(view) : 0;
  }
  const bool screen = !options.json && Terminal::available();
  return screen ? follow_on_terminal(options, run, view)
                : follow_with_lines(options, run, view);
}

}  // namespace

void add_watch(CLI::App& program, Outcome& outcome) {
  const auto options = std::make_shared<WatchCall>();
  CLI::App* verb = program.add_subcommand(
      "watch", "How a run stands, on one screen that is redrawn: q or Ctrl-C ends it");
  verb->add_option("run", options->run, "the run's directory")->required();
  verb->add_flag("--once", options->once, "print one screen and end");
  verb->add_flag("--json", options->json,
                 "machine-readable: one object a line, or one object with --once");
  verb->add_flag("--until-end", options->until_end, "end when the run has ended");
  verb->add_option("--interval", options->interval,
                   "seconds between looks (1 on a terminal, 10 elsewhere)")
      ->check(CLI::Range(0.1, 86400.0));
  verb->footer(
      "Reads only, from any machine that sees the directory. Before the run has begun it "
      "waits\n"
      "for it, except with --once. Without a terminal it prints a line whenever there "
      "is\n"
      "something new. NO_COLOR=1 turns colours off.\n"
      "With --until-end it ends with 0 when the run is done, and with 79 when the file\n"
      "STOP or a rule of the run file (stop_above, run.expect, run.golden) has ended "
      "it.\n"
      "It ends with 75 when the run was stopped otherwise and can go on, and with 1 "
      "when\n"
      "the run failed or was killed.\n"
      "Examples:\n"
      "  longhaul watch runs/cpt\n"
      "  longhaul watch runs/cpt --once --json | jq .ledger.goodput\n"
      "  longhaul watch runs/cpt --until-end && longhaul export runs/cpt --out hf/");
  verb->callback([options, &outcome] { outcome.exit_code = run_watch(*options); });
}

}  // namespace longhaul::apps
