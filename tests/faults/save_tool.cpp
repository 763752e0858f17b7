// longhaul_save_tool RUN_DIR RANKS KEEP overlap|wait STEP...: saves tiny checkpoints as a
// training run does, to be run under fault_files.cpp. Writes a line to standard output,
// and a marker into the record, for each save that has ended: "committed STEP ATTEMPT" or
// "failed STEP ATTEMPT why".
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "longhaul/base/error.h"
#include "tests/faults/tiny_run.h"

namespace {

void say(const std::string& line) {
  using Marker = void (*)(const char*);
  if (void* marker = dlsym(RTLD_DEFAULT, "longhaul_fault_marker")) {
    reinterpret_cast<Marker>(marker)(line.c_str());
  }
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  using longhaul::checkpoint::SaveReport;
  if (argc < 6) {
    fmt::print(stderr,
               "usage: longhaul_save_tool RUN_DIR RANKS KEEP overlap|wait STEP...\n");
    return 78;
  }
  longhaul::faults::TinyRun run;
  run.run_dir = argv[1];
  run.ranks = std::stoi(argv[2]);
  run.keep = std::stol(argv[3]);
  run.overlap = std::string(argv[4]) == "overlap";
  for (int i = 5; i < argc; ++i) run.steps.push_back(std::stol(argv[i]));
  try {
    longhaul::faults::run_tiny(run, [](const SaveReport& report, int attempt) {
      if (report.error.empty()) {
        say(fmt::format("committed {} {}", report.step, attempt));
      } else {
        say(fmt::format("failed {} {} {}", report.step, attempt, report.error));
      }
    });
  } catch (const longhaul::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
