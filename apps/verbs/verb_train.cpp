#include <fmt/format.h>
#include <sys/prctl.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "apps/inputs/data_places.h"
#include "apps/mpirun_end.h"
#include "apps/program.h"
#include "apps/ranks.h"
#include "apps/run_of_job.h"
#include "apps/start/other_launcher.h"
#include "apps/verbs.h"
#include "longhaul/base/append_file.h"
#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/file.h"
#include "longhaul/base/refused.h"
#include "longhaul/comm/backend.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/config/load.h"
#include "longhaul/run/files.h"
#include "longhaul/run/rank_record.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/start_watch.h"
#include "longhaul/tensor/cpu_memory.h"
#include "longhaul/train/start/packed_data.h"
#include "longhaul/train/trainer.h"

namespace longhaul::apps {
namespace {

struct TrainOptions {
  std::string file;
  std::vector<std::string> sets;
};

/// Seconds for which a start goes on after a signal. A start that has not come to its
/// first step by then ends.
constexpr double kStartGrace = 5.0;

/// The variable by which a supervisor says in which directory every rank writes its
/// record; see longhaul/run/rank_record.h.
constexpr const char* kRecordDirectory = "LONGHAUL_RECORD_DIR";

/// Adds an error to the run's log, if the run has begun one. A failure to write it is
/// ignored, because the process ends for the first error anyway.
void add_to_log(const fs::path& log, const std::string& line) {
  std::error_code ignored;
  if (!fs::exists(log, ignored)) return;
  try {
    AppendFile(log).append("error: " + line + "\n");
  } catch (const Error&) {
    return;
  }
}

void attach_record(comm::Communicator& world) {
  const char* dir = std::getenv(kRecordDirectory);
  if (dir == nullptr) return;
  // The agent looks at the stack of a rank that hangs. It is not the rank's parent, so
  // the rank lets any process do that.
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  world.ledger().attach(std::make_shared<run::RankRecord>(
      run::RankRecord::create(dir, world.rank(), world.size())));
}

/// The settings, or what is wrong with them. With several ranks the error is kept until
/// the ranks communicate, so that it is said only once.
struct Settings {
  std::optional<LoadedConfig> loaded;
  std::exception_ptr problem;
};

Settings read_settings(const TrainOptions& options) {
  try {
    return {load_run_config(options.file, options.sets), nullptr};
  } catch (const std::exception&) {
    return {std::nullopt, std::current_exception()};
  }
}

int exit_code_of(train::TrainEnd end) {
  if (end == train::TrainEnd::Done) return 0;
  return end == train::TrainEnd::Stopped ? kExitStopped : kExitTemporary;
}

struct Milestones {
  std::function<void()> before_steps;
  std::function<void()> all_is_saved;
};

/// Trains with the ranks of one start, and ends all ranks when one fails.
int train_ranks(const Settings& settings, const World& world, data::ShardReader* shards,
                const Milestones& milestones, const objects::Access& objects) {
  const auto work = [&] {
    if (settings.problem) std::rethrow_exception(settings.problem);
    attach_record(*world);
    check_same_config(*world, settings.loaded->config);
    const fs::path& run_dir = settings.loaded->config.run.dir;
    const std::string expected = world->rank() == 0 ? expected_run(run_dir) : "";
    const auto before_steps = [&] {
      milestones.before_steps();
      if (world->rank() == 0) note_run_of_job(run_dir);
    };
    const train::TrainResult result =
        train::run_training(*settings.loaded, world, before_steps, shards,
                            train::Saving::Yes, objects, expected);
    milestones.all_is_saved();
    comm::finish(*world);
    system::ignore_signals_until_exit();
    const int exit_code = exit_code_of(result.end);
    if (run::RankRecord* record = world->ledger().record()) record->finished(exit_code);
    return exit_code;
  };
  const auto say = [&](const std::string& line) {
    say_error(objects.with_addresses(line));
  };
  return run_ranks(world, say, work, [&](const Error& error) {
    run::RankRecord* record = world->ledger().record();
    if (record == nullptr) return;
    record->failed(objects.with_addresses(error.what()));
    record->finished(error.exit_code());
  });
}

int train(const TrainOptions& options, const objects::Access& objects) {
  tensor::tune_cpu_memory();
  check_launcher();
  // The settings are checked before the program touches MPI, a device or much memory.
  Settings settings = read_settings(options);
  const comm::Launch launch = comm::detect_launch();
  if (settings.problem && !launch.several()) std::rethrow_exception(settings.problem);
  // The shard reader forks a process, which has to be small and to have one thread. One
  // rank of each machine makes it.
  std::unique_ptr<data::ShardReader> shards;
  if (settings.loaded && launch.local_rank == 0 &&
      train::needs_shard_reader(settings.loaded->config)) {
    shards = std::make_unique<data::ShardReader>();
  }
  const system::SignalWatch signals;
  std::optional<system::StartWatch> start;
  start.emplace(kExitTemporary, kStartGrace, [](int signal) {
    say_error(fmt::format("[signal] {} before the first step: nothing is to be saved",
                          system::signal_name(signal)));
  });
  comm::CommOptions limits;
  if (settings.loaded) {
    const ResilienceSection& settled = settings.loaded->config.resilience;
    limits.deadline_seconds = settled.comm_timeout_s;
    limits.hurry_seconds = settled.signal_timeout_s;
  }
  limits.hurries = [] {
    const system::RaisedSignal signal = system::raised_signal();
    return signal.number != 0 && !signal.answered;
  };
  // The reason that mpirun ends the job is known only when all ranks have started. Before
  // that, no operation waits for long.
  std::unique_ptr<MpirunEnd> mpirun;
  if (launch.by_mpirun) {
    limits.job_ends = [&] { return mpirun ? mpirun->reason() : std::string(); };
  }
  const auto world = comm::world(comm::Backend::Auto, limits);
  // Only rank 0, which prints the warnings, asks the file system.
  if (world->rank() == 0 && settings.loaded) {
    warn_of_places(*settings.loaded);
    const std::string told = warning_of_limits();
    if (!told.empty()) settings.loaded->warnings.push_back(told);
  }
  if (launch.by_mpirun) {
    std::function<void(const std::string&)> tell;
    if (world->rank() == 0 && settings.loaded) {
      tell = [log = settings.loaded->config.run.dir /
                    run::kLogFile](const std::string& line) {
        say_error(line);
        add_to_log(log, line);
      };
    }
    mpirun = std::make_unique<MpirunEnd>(std::move(tell));
  }
  const auto before_steps = [&] {
    shards.reset();
    start.reset();
  };
  return train_ranks(settings, world, shards.get(),
                     {before_steps, [&] { mpirun.reset(); }}, objects);
}

}  // namespace

void add_train(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* verb = program.add_subcommand(kTrainVerb.name, kTrainVerb.description);
  verb->add_option("config", options->file, "configuration (TOML)")->required();
  add_set_option(*verb, options->sets, "; section.key= removes the key");
  verb->footer(
      "Examples:\n"
      "  longhaul train run.toml\n"
      "  mpirun -n 2 longhaul train run.toml --set run.dir=runs/two\n"
      "The same command goes on from the newest checkpoint. Exit 75: a signal stopped "
      "the run, which\n"
      "saved. Exit 79: the file STOP in the run's directory, or stop_above of "
      "data.validation,\n"
      "run.expect or run.golden, stopped the run, which saved.\n"
      "On one machine use longhaul launch -n 2 run.toml: mpirun gives ranks one second "
      "to save after Ctrl-C or SIGTERM.");
  verb->callback(
      [options, &outcome] { outcome.exit_code = train(*options, outcome.objects); });
}

}  // namespace longhaul::apps
