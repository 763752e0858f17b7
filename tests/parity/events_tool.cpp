// Writes the records of a start of a run, for the comparison with the tensorboard
// package:
//   longhaul_events_tool RUN STEPS ATTEMPT [FIRST]
// The records reach from step FIRST (1) to STEPS, and their numbers follow from step and
// attempt.
#include <fmt/format.h>

#include <cstdlib>

#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/run/files.h"
#include "longhaul/train/log/metrics.h"

int main(int argc, char** argv) {
  using namespace longhaul;
  if (argc != 4 && argc != 5) {
    fmt::print(stderr, "usage: longhaul_events_tool RUN STEPS ATTEMPT [FIRST]\n");
    return 78;
  }
  try {
    system::Logger silent;
    const fs::path dir = argv[1];
    train::MetricsWriter writer(dir, silent, 1, dir / run::kTensorBoardDir);
    const int64_t steps = std::atoll(argv[2]);
    const int64_t first = argc == 5 ? std::atoll(argv[4]) : 1;
    writer.begin(first - 1, steps);
    for (int64_t step = first; step <= steps; ++step) {
      run::StepRecord m;
      m.step = step;
      m.attempt = std::atoi(argv[3]);
      m.loss = 11.76 / static_cast<double>(step);
      m.lr = 3.748e-8 * static_cast<double>(step);
      m.tokens = static_cast<double>(step * (int64_t{1} << 33));
      m.grad_norm = 10.75;
      writer.step(m, {{"wiki", step * (int64_t{1} << 33)}});
    }
    writer.validation({steps, 1, unix_time(), 0.5, 1.652, "wiki"});
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_code();
  }
  return 0;
}
