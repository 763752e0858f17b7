#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "apps/inputs/data_places.h"
#include "apps/program.h"
#include "apps/ranks.h"
#include "apps/run_of_job.h"
#include "apps/start/other_launcher.h"
#include "apps/verbs.h"
#include "longhaul/base/append_file.h"
#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/file.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/process.h"
#include "longhaul/base/refused.h"
#include "longhaul/comm/backend.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/config/load.h"
#include "longhaul/run/files.h"
#include "longhaul/run/rank_record.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/start_watch.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/tensor/cpu_memory.h"
#include "longhaul/train/start/packed_data.h"
#include "longhaul/train/trainer.h"

namespace longhaul::apps {
namespace {

struct TrainOptions {
  std::string file;
  std::vector<std::string> sets;
  std::string rehearse;  ///< the flag; empty: none was given
};

train::Rehearse rehearse_of(const std::string& flag) {
  if (flag.empty()) return train::Rehearse::IfLarge;
  return flag == kRehearse ? train::Rehearse::Yes : train::Rehearse::No;
}

constexpr auto kBetweenLooks = std::chrono::milliseconds(20);
/// A rank whose death made mpirun end the job is gone within this time.
constexpr double kDeathSeconds = 0.5;
/// This process ends so many seconds after SIGTERM: SIGKILL comes after one second.
constexpr double kSaveSeconds = 0.85;

/// Returns the parent of a process that is not dead.
std::optional<int> parent_of(int pid) {
  const auto fields = stat_fields(fmt::format("/proc/{}", pid));
  if (fields.size() < 2 || fields[0] == "Z" || fields[0] == "X") return std::nullopt;
  return whole_number<int>(fields[1]);
}

std::vector<int> children_of(int parent) {
  std::vector<int> found;
  for (const fs::path& path : paths_in("/proc")) {
    const std::string name = path.filename().string();
    const auto pid = whole_number<int>(name);
    if (pid && parent_of(*pid) == parent) found.push_back(*pid);
  }
  return found;
}

std::string told_to_end() {
  const std::string left = system::last_words();
  const bool lost = left.ends_with("again");
  return fmt::format(
      "[signal] SIGTERM of mpirun, which was told to end and kills the ranks a second "
      "later: {}{}",
      left.empty() ? "before the first step of this start, nothing is lost" : left,
      lost ? "; start it with longhaul launch, which saves first" : "");
}

/// Finds out why mpirun sends SIGTERM, which SIGKILL follows one second later: because a
/// rank of this machine is gone, or because somebody has sent mpirun a signal. In the
/// latter case the ranks have that second to save. If it is too short, this process
/// prints system::last_words(), which say what is lost, and ends just before it is
/// killed.
class MpirunEnd {
 public:
  /// Call the constructor when all ranks have started. `say` gets the line, on a thread
  /// of its own. Only one rank, which speaks for all, has a `say`; on the others it is
  /// empty.
  explicit MpirunEnd(std::function<void(const std::string& line)> say);
  ~MpirunEnd();
  MpirunEnd(const MpirunEnd&) = delete;
  MpirunEnd& operator=(const MpirunEnd&) = delete;

  /// Returns, for CommOptions::job_ends, why a wait cannot end; empty while it can.
  std::string reason() const;

 private:
  void watch();
  bool one_is_gone() const;

  std::function<void(const std::string&)> say_;
  std::vector<int> others_;  ///< processes of the same mpirun on this machine
  std::atomic<bool> rank_died_ = false;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  std::thread thread_;
};

MpirunEnd::MpirunEnd(std::function<void(const std::string& line)> say)
    : say_(std::move(say)),
      others_(children_of(::getppid())),
      thread_([this] { watch(); }) {}

MpirunEnd::~MpirunEnd() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

bool MpirunEnd::one_is_gone() const {
  const int parent = ::getppid();
  return std::ranges::any_of(others_, [&](int pid) { return parent_of(pid) != parent; });
}

std::string MpirunEnd::reason() const { return rank_died_ ? mpirun_ends_job() : ""; }

void MpirunEnd::watch() {
  system::leave_signals_to_main_thread();
  std::optional<system::Stopwatch> since;
  std::unique_lock lock(mutex_);
  while (!ended_) {
    if (!since && !mpirun_ends_job().empty()) since.emplace();
    if (since && !rank_died_ && since->seconds() < kDeathSeconds) {
      rank_died_ = one_is_gone();
    }
    if (since && !rank_died_ && since->seconds() >= kSaveSeconds) {
      if (say_) say_(told_to_end());
      ::_exit(kExitTemporary);
    }
    ends_.wait_for(lock, kBetweenLooks);
  }
}

/// Seconds for which a start goes on after a signal. A start that has not come to its
/// first step by then ends.
constexpr double kStartGrace = 5.0;

/// The variable by which a supervisor says in which directory every rank writes its
/// record; see longhaul/run/rank_record.h.
constexpr const char* kRecordDirectory = "LONGHAUL_RECORD_DIR";

/// Adds an error to the run's log, if the run has begun one. A failure to write it is
/// ignored, because the process ends for the first error anyway.
void add_to_log(const fs::path& log, const std::string& line) {
  if (!is_seen(log)) return;
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
                const Milestones& milestones, const objects::Access& objects,
                train::Rehearse rehearse) {
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
                            train::Saving::Yes, objects, expected, rehearse);
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
                     {before_steps, [&] { mpirun.reset(); }}, objects,
                     rehearse_of(options.rehearse));
}

}  // namespace

void add_train(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* verb = program.add_subcommand(kTrainVerb.name, kTrainVerb.description);
  verb->add_option("config", options->file, "configuration (TOML)")->required();
  add_set_option(*verb, options->sets, "; section.key= removes the key");
  add_rehearse_flags(*verb, options->rehearse);
  verb->footer(
      "Examples:\n"
      "  longhaul train run.toml\n"
      "  srun --mpi=pmix longhaul train run.toml --rehearse\n"
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
