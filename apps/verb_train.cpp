#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/memory.h"
#include "longhaul/comm/backend.h"
#include "longhaul/config/load.h"
#include "longhaul/train/trainer.h"

namespace longhaul::apps {
namespace {

struct TrainOptions {
  std::string file;
  std::vector<std::string> sets;
};

constexpr int kTemporary = 75;

/// Names the rank, so that a line in a shared log says who it is from.
void report(const comm::Communicator& world, const char* what) {
  if (world.size() == 1) {
    fmt::print(stderr, "longhaul: error: {}\n", what);
  } else {
    fmt::print(stderr, "longhaul: error: rank {} of {}: {}\n", world.rank(), world.size(),
               what);
  }
  std::fflush(stderr);
}

int run_ranks(const LoadedConfig& loaded,
              const std::shared_ptr<comm::Communicator>& world) {
  int exit_code = 1;
  try {
    const train::TrainResult result = train::run_training(loaded, world);
    comm::finish(*world);
    return result.interrupted ? kTemporary : 0;
  } catch (const Error& error) {
    report(*world, error.what());
    exit_code = error.exit_code();
  } catch (const fs::filesystem_error& problem) {
    const Error error = to_error(problem);
    report(*world, error.what());
    exit_code = error.exit_code();
  } catch (const std::exception& error) {
    report(*world, error.what());
  }
  // The other ranks may be waiting for this one.
  if (world->size() > 1) world->abort(exit_code);
  return exit_code;
}

}  // namespace

void add_train(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* verb =
      program.add_subcommand("train", "Trains a model, or goes on training it");
  verb->add_option("config", options->file, "configuration (TOML)")->required();
  verb->add_option("--set", options->sets, "section.key=value, over the file; repeatable")
      ->allow_extra_args(false);
  verb->footer(
      "Examples:\n"
      "  longhaul train run.toml\n"
      "  mpirun -n 2 longhaul train run.toml --set run.dir=runs/two\n"
      "The same command goes on from the newest checkpoint. Exit 75: stopped by a "
      "signal, "
      "saved.");
  verb->callback([options, &outcome] {
    tune_malloc();
    // Settings are checked before MPI, a device or any memory is touched.
    const LoadedConfig loaded = load_run_config(options->file, options->sets);
    outcome.exit_code = run_ranks(loaded, comm::world());
  });
}

}  // namespace longhaul::apps
