#include "longhaul/drill/small_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>
#include <optional>
#include <random>

#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/cluster/fleet/job_step.h"
#include "longhaul/cluster/supervisor/supervisor_lease.h"
#include "longhaul/drill/strike.h"
#include "longhaul/monitor/run_files.h"
#include "longhaul/monitor/terminal_writer.h"
#include "longhaul/run/files.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::drill {
namespace {

constexpr double kWatchSeconds = 0.02;
constexpr double kDeathSeconds = 0.5;

constexpr const char* kModel = R"({"architectures": ["LlamaForCausalLM"],
 "model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
 "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
 "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";

constexpr const char* kConfig = R"([run]
dir = "{dir}"
steps = {steps}
threads = 1
[model]
config = "{model}"
[data]
seq_len = 64
train = [{{ synthetic = 4096 }}]
[batch]
global_size = {batch}
micro_size = 1
[optimizer]
lr = 1e-3
[checkpoint]
every = 5
keep = 3
[resilience]
hang_timeout_s = {hang}
)";

/// A supervised run as a process of this drill. Its output goes to the end of `log`. When
/// this object goes, the run has ten seconds to end before it is killed.
class SmallRun {
 public:
  SmallRun(const std::vector<std::string>& words, const fs::path& log)
      : words_({"sh", "-c", "exec \"$@\" >>\"$0\" 2>&1", log.string()}) {
    words_.insert(words_.end(), words.begin(), words.end());
    start();
  }
  ~SmallRun() {
    signal(SIGTERM);
    const system::Stopwatch watch;
    while (!exit_code() && watch.seconds() < 10.0) monitor::sleep_seconds(kWatchSeconds);
  }

  void start() { step_.emplace(cluster::JobStep::start(words_, {})); }
  /// Returns nothing while the run goes on; 128 and more stand for a signal.
  std::optional<int> exit_code() {
    const auto end = step_->poll();
    return end ? std::optional(end->exit_code) : std::nullopt;
  }
  void signal(int number) const { step_->signal(number); }

 private:
  std::vector<std::string> words_;
  std::optional<cluster::JobStep> step_;
};

using Curve = std::map<int64_t, std::pair<double, double>>;

/// Returns loss and gradient norm of every step, as it was done last.
Curve curve_of(const monitor::RunFiles& run) {
  Curve curve;
  for (const run::StepRecord& record : run.records().all()) {
    curve[record.step] = {record.loss, record.grad_norm};
  }
  return curve;
}

/// A run that may have written nothing yet.
class Followed {
 public:
  explicit Followed(fs::path dir) : dir_(std::move(dir)) {}
  /// Returns the run's files as they are now; null while there are none.
  monitor::RunFiles* look() {
    try {
      if (!run_) run_.emplace(dir_);
      run_->refresh();
    } catch (const Error&) {
      // There is no run yet, or a file is just being replaced.
    }
    return run_ ? &*run_ : nullptr;
  }
  const fs::path& dir() const { return dir_; }
  int64_t last_step() {
    const monitor::RunFiles* run = look();
    const run::StepRecord* last = run == nullptr ? nullptr : run->records().last();
    return last == nullptr ? 0 : last->step;
  }

 private:
  fs::path dir_;
  std::optional<monitor::RunFiles> run_;
};

/// Returns a batch of at most 16 sequences, or of one per rank if there are more ranks.
/// Each rank has the same number of them.
int batch_of(int ranks) { return ranks * std::max(1, 16 / ranks); }

/// Flips a byte in the middle of the largest file of the newest whole checkpoint.
bool damage_newest(const fs::path& run_dir) {
  const fs::path checkpoints = run_dir / run::kCheckpointsDir;
  const auto step = cluster::newest_checkpoint(checkpoints);
  if (!step) return false;
  fs::path largest;
  for (const auto& entry :
       fs::directory_iterator(checkpoints / run::step_directory_name(*step))) {
    if (entry.path().extension() != ".safetensors") continue;
    if (largest.empty() || entry.file_size() > fs::file_size(largest)) {
      largest = entry.path();
    }
  }
  if (largest.empty()) return false;
  std::fstream file(largest, std::ios::in | std::ios::out | std::ios::binary);
  const auto middle = static_cast<std::streamoff>(fs::file_size(largest) / 2);
  file.seekg(middle);
  const int byte = file.get();
  file.seekp(middle);
  file.put(static_cast<char>(byte ^ 0x40));
  return static_cast<bool>(file);
}

/// Runs the undisturbed run, then one run per fault, and compares.
class Drill {
 public:
  explicit Drill(const SmallRunOptions& options)
      : options_(options), random_(options.seed) {
    fs::create_directories(options.dir / "model");
    write_text_durable(options.dir / "model" / "config.json", kModel);
  }

  void run_undisturbed() {
    SmallRun run(words_for("undisturbed"), options_.dir / "undisturbed.log");
    const std::optional<int> code = wait_for_end(run);
    Followed files(options_.dir / "undisturbed");
    const monitor::RunFiles* found = files.look();
    if (code != 0 || found == nullptr) {
      fail_temporary("drill", "the undisturbed run failed (exit code {}); see {}",
                     code.value_or(-1), (options_.dir / "undisturbed.log").string());
    }
    wanted_ = curve_of(*found);
  }

  DrillResult run(DrillFault fault) {
    DrillResult result;
    result.fault = drill_fault_name(fault);
    const fs::path dir = options_.dir / result.fault;
    SmallRun run(words_for(result.fault), options_.dir / (result.fault + ".log"));
    Followed files(dir);
    // The moment is late enough for a checkpoint, and for two checkpoints if the newest
    // one is damaged.
    const int64_t first = fault == DrillFault::DamageCheckpoint ? 12 : 6;
    const int64_t moment =
        first + static_cast<int64_t>(random_() %
                                     static_cast<uint64_t>(options_.steps - first - 5));
    if (!wait_for_step(run, files, moment)) {
      result.cause = fmt::format("the run did not reach step {}", moment);
      return result;
    }
    const BeforeFault before = before_fault(*files.look());
    result.at_step = before.step;
    try {
      inject(fault, run, files);
    } catch (const Error& problem) {
      result.cause = fmt::format("the fault could not be injected: {}", problem.what());
      return result;
    }
    result.survived = wait_for_end(run) == 0;
    result.same_losses = curve_of(*files.look()) == wanted_;
    static_cast<Recovery&>(result) = recovery_since(*files.look(), before);
    if (!result.survived && result.cause.empty())
      result.cause = "the run did not end as it should";
    return result;
  }

 private:
  std::vector<std::string> words_for(const std::string& name) {
    const fs::path dir = fs::absolute(options_.dir / name);
    if (fs::exists(dir)) {
      fail_input("drill", "{} is there already; choose another --dir", dir.string());
    }
    const fs::path config = fs::absolute(options_.dir / (name + ".toml"));
    write_text_durable(
        config,
        fmt::format(fmt::runtime(kConfig), fmt::arg("dir", dir.string()),
                    fmt::arg("steps", options_.steps),
                    fmt::arg("hang", options_.hang_seconds),
                    fmt::arg("batch", batch_of(options_.ranks)),
                    fmt::arg("model", fs::absolute(options_.dir / "model").string())));
    return options_.command(config);
  }

  std::optional<int> wait_for_end(SmallRun& run) {
    const system::Stopwatch watch;
    while (watch.seconds() < options_.limit_seconds) {
      if (const auto code = run.exit_code()) return code;
      monitor::sleep_seconds(kWatchSeconds);
    }
    return std::nullopt;
  }

  bool wait_for_step(SmallRun& run, Followed& files, int64_t step) {
    const system::Stopwatch watch;
    while (watch.seconds() < options_.limit_seconds && !run.exit_code()) {
      if (files.last_step() >= step) return true;
      monitor::sleep_seconds(kWatchSeconds);
    }
    return false;
  }

  void inject(DrillFault fault, SmallRun& run, Followed& files) {
    if (fault == DrillFault::Terminate || fault == DrillFault::KillSupervisor) {
      run.signal(fault == DrillFault::Terminate ? SIGTERM : SIGKILL);
      const std::optional<int> code = wait_for_end(run);
      if (fault == DrillFault::Terminate && code != kExitTemporary) {
        fail_temporary("drill", "SIGTERM ended the run with exit code {} instead of {}",
                       code.value_or(-1), kExitTemporary);
      }
      return run.start();
    }
    const auto status = files.look()->status();
    if (!status || status->ranks.empty()) {
      throw TemporaryError("drill", std::string(run::kStatusFile) + " shows no ranks");
    }
    if (fault == DrillFault::DamageCheckpoint && !damage_newest(files.dir())) {
      fail_temporary("drill", "there is no checkpoint to damage");
    }
    const int64_t rank = status->ranks[random_() % status->ranks.size()].rank;
    strike(files.dir(), *status,
           fault == DrillFault::DamageCheckpoint ? DrillFault::KillWorker : fault, rank);
    if (fault == DrillFault::KillNode) start_again_if_killed(run);
  }

  /// Starts the supervisor again if it was killed with its node, as the batch script of a
  /// real run does.
  static void start_again_if_killed(SmallRun& run) {
    const system::Stopwatch watch;
    while (watch.seconds() < kDeathSeconds && !run.exit_code())
      monitor::sleep_seconds(kWatchSeconds);
    if (run.exit_code() == 128 + SIGKILL) run.start();
  }

  const SmallRunOptions& options_;
  std::mt19937_64 random_;
  Curve wanted_;
};

}  // namespace

std::vector<DrillResult> drill_small_runs(const std::vector<DrillFault>& faults,
                                          const SmallRunOptions& options) {
  Drill drill(options);
  const auto say = [&](const std::string& line) {
    if (options.progress) options.progress(line);
  };
  say("an undisturbed run, to compare with");
  drill.run_undisturbed();
  std::vector<DrillResult> results;
  for (const DrillFault fault : faults) {
    say(drill_fault_name(fault));
    results.push_back(drill.run(fault));
  }
  return results;
}

}  // namespace longhaul::drill
