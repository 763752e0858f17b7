#include "longhaul/cluster/drill.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/base/stopwatch.h"

extern char** environ;

namespace longhaul::cluster {
namespace {

constexpr double kLookSeconds = 0.02;
constexpr int kTemporary = 75;

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
global_size = 16
micro_size = 1
[optimizer]
lr = 1e-3
[checkpoint]
every = 5
keep = 3
[resilience]
hang_timeout_s = 5
)";

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// A supervised run as a process of ours; killed with what it started when it is left.
class SmallRun {
 public:
  SmallRun(const std::vector<std::string>& words, fs::path log)
      : words_(words), log_(std::move(log)) {
    start();
  }
  ~SmallRun() {
    if (pid_ > 0 && !exit_code()) {
      ::kill(pid_, SIGTERM);
      const Stopwatch watch;
      while (!exit_code() && watch.seconds() < 10.0) sleep_for(kLookSeconds);
      if (!exit_code()) ::kill(pid_, SIGKILL);
    }
  }
  SmallRun(const SmallRun&) = delete;
  SmallRun& operator=(const SmallRun&) = delete;

  void start() {
    ended_.reset();
    std::vector<char*> arguments;
    for (std::string& word : words_) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, 1, log_.c_str(),
                                       O_WRONLY | O_CREAT | O_APPEND, 0644);
    ::posix_spawn_file_actions_adddup2(&files, 1, 2);
    const int error =
        ::posix_spawnp(&pid_, arguments[0], &files, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&files);
    if (error != 0) {
      throw TemporaryError("drill", fmt::format("{} cannot be started: {}", words_[0],
                                                std::strerror(error)));
    }
  }
  /// Nothing while it runs; 128 and more: by a signal.
  std::optional<int> exit_code() {
    int status = 0;
    if (!ended_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
      ended_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    return ended_;
  }
  void signal(int number) const { ::kill(pid_, number); }

 private:
  std::vector<std::string> words_;
  fs::path log_;
  pid_t pid_ = -1;
  std::optional<int> ended_;
};

struct StepSeen {
  double loss = 0.0;
  double norm = 0.0;
  int64_t attempt = 0;
  double time = 0.0;
};

/// Lines that are JSON objects; a torn last line is left out.
std::vector<Json> lines_of(const fs::path& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    Json json = Json::parse(line, nullptr, false);
    if (json.is_object()) lines.push_back(std::move(json));
  }
  return lines;
}

/// Every record of every step, in the order of writing.
std::vector<std::pair<int64_t, StepSeen>> steps_of(const fs::path& run_dir) {
  std::vector<std::pair<int64_t, StepSeen>> steps;
  for (const Json& line : lines_of(run_dir / "metrics.jsonl")) {
    if (!line.contains("grad_norm")) continue;
    steps.emplace_back(
        line.value("step", int64_t{0}),
        StepSeen{line.value("loss", 0.0), line.value("grad_norm", 0.0),
                 line.value("attempt", int64_t{0}), line.value("time", 0.0)});
  }
  return steps;
}

std::map<int64_t, std::pair<double, double>> curve_of(const fs::path& run_dir) {
  std::map<int64_t, std::pair<double, double>> curve;
  for (const auto& [step, seen] : steps_of(run_dir)) curve[step] = {seen.loss, seen.norm};
  return curve;
}

/// Process ids of the workers on this machine, by rank.
std::map<int, int64_t> workers_of(const fs::path& run_dir) {
  std::map<int, int64_t> workers;
  const Json status = Json::parse(read_text(run_dir / "status.json"), nullptr, false);
  if (!status.is_object()) return workers;
  for (const Json& rank : status.value("ranks", Json::array())) {
    if (rank.value("node", "") == host_name()) {
      workers[rank.value("rank", -1)] = rank.value("pid", int64_t{-1});
    }
  }
  return workers;
}

/// Flips a byte in the middle of the largest file of the newest whole checkpoint.
bool damage_newest(const fs::path& run_dir) {
  fs::path newest;
  for (const auto& entry : fs::directory_iterator(run_dir / "checkpoints")) {
    if (!fs::exists(entry.path() / "manifest.json")) continue;
    if (newest.empty() || entry.path() > newest) newest = entry.path();
  }
  if (newest.empty()) return false;
  fs::path largest;
  for (const auto& entry : fs::directory_iterator(newest)) {
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

class Drill {
 public:
  explicit Drill(const DrillOptions& options) : options_(options), random_(options.seed) {
    fs::create_directories(options.dir / "model");
    write_text_durable(options.dir / "model" / "config.json", kModel);
  }

  void run_undisturbed() {
    const fs::path dir = options_.dir / "undisturbed";
    SmallRun run(words_for("undisturbed"), options_.dir / "undisturbed.log");
    const std::optional<int> code = wait_for_end(run);
    if (code != 0) {
      throw TemporaryError(
          "drill",
          fmt::format("the undisturbed run failed (exit code {}); see {}",
                      code.value_or(-1), (options_.dir / "undisturbed.log").string()));
    }
    wanted_ = curve_of(dir);
  }

  DrillResult run(DrillFault fault) {
    DrillResult result;
    result.fault = drill_fault_name(fault);
    const fs::path dir = options_.dir / result.fault;
    SmallRun run(words_for(result.fault), options_.dir / (result.fault + ".log"));
    // Late enough for a checkpoint, and for an older one where the newest is damaged.
    const int64_t first = fault == DrillFault::DamageCheckpoint ? 12 : 6;
    const int64_t moment =
        first + static_cast<int64_t>(random_() %
                                     static_cast<uint64_t>(options_.steps - first - 5));
    if (!wait_for_step(run, dir, moment)) {
      result.cause = fmt::format("it did not come to step {}", moment);
      return result;
    }
    const double struck = unix_time();
    const auto before = steps_of(dir);
    result.at_step = before.empty() ? 0 : before.back().first;
    if (!strike(fault, run, dir)) {
      result.cause = "the fault could not be injected: no worker is on this machine";
      return result;
    }
    result.survived = wait_for_end(run) == 0;
    result.same_losses = curve_of(dir) == wanted_;
    judge(dir, struck, result);
    return result;
  }

 private:
  std::vector<std::string> words_for(const std::string& name) {
    const fs::path dir = fs::absolute(options_.dir / name);
    if (fs::exists(dir)) {
      throw InputError("drill", fmt::format("{} is there already; choose another --dir",
                                            dir.string()));
    }
    const fs::path config = fs::absolute(options_.dir / (name + ".toml"));
    write_text_durable(
        config,
        fmt::format(fmt::runtime(kConfig), fmt::arg("dir", dir.string()),
                    fmt::arg("steps", options_.steps),
                    fmt::arg("model", fs::absolute(options_.dir / "model").string())));
    return options_.command(config);
  }

  std::optional<int> wait_for_end(SmallRun& run) {
    const Stopwatch watch;
    while (watch.seconds() < options_.limit_seconds) {
      if (const auto code = run.exit_code()) return code;
      sleep_for(kLookSeconds);
    }
    return std::nullopt;
  }

  bool wait_for_step(SmallRun& run, const fs::path& dir, int64_t step) {
    const Stopwatch watch;
    while (watch.seconds() < options_.limit_seconds && !run.exit_code()) {
      const auto steps = steps_of(dir);
      if (!steps.empty() && steps.back().first >= step) return true;
      sleep_for(kLookSeconds);
    }
    return false;
  }

  bool strike(DrillFault fault, SmallRun& run, const fs::path& dir) {
    const auto workers = workers_of(dir);
    if (fault == DrillFault::Terminate || fault == DrillFault::KillSupervisor) {
      run.signal(fault == DrillFault::Terminate ? SIGTERM : SIGKILL);
      const std::optional<int> code = wait_for_end(run);
      if (fault == DrillFault::Terminate && code != kTemporary) return false;
      run.start();
      return true;
    }
    if (workers.empty()) return false;
    auto victim = workers.begin();
    std::advance(victim, static_cast<std::ptrdiff_t>(random_() % workers.size()));
    if (fault == DrillFault::DamageCheckpoint && !damage_newest(dir)) return false;
    for (const auto& [rank, pid] : workers) {
      if (fault != DrillFault::KillWorkers && rank != victim->first) continue;
      if (pid <= 1) return false;
      ::kill(static_cast<pid_t>(pid),
             fault == DrillFault::StopWorker ? SIGSTOP : SIGKILL);
    }
    return true;
  }

  static void judge(const fs::path& dir, double struck, DrillResult& result) {
    int64_t attempt = 0;
    int64_t furthest = 0;
    for (const auto& [step, seen] : steps_of(dir)) {
      if (attempt != 0 && seen.attempt > attempt) {
        result.seconds_to_next_step = seen.time - struck;
        result.steps_redone = furthest - step + 1;
        break;
      }
      attempt = seen.attempt;
      furthest = std::max(furthest, step);
    }
    for (const Json& event : lines_of(dir / "events.jsonl")) {
      if (event.value("event", "") == "fault") result.cause = event.value("cause", "");
    }
    if (!result.survived && result.cause.empty()) result.cause = "it did not end well";
  }

  const DrillOptions& options_;
  std::mt19937_64 random_;
  std::map<int64_t, std::pair<double, double>> wanted_;
};

}  // namespace

std::vector<DrillFault> drill_faults() {
  return {DrillFault::KillWorker, DrillFault::KillWorkers,
          DrillFault::StopWorker, DrillFault::KillSupervisor,
          DrillFault::Terminate,  DrillFault::DamageCheckpoint};
}

const char* drill_fault_name(DrillFault fault) {
  switch (fault) {
    case DrillFault::KillWorker:
      return "kill-worker";
    case DrillFault::KillWorkers:
      return "kill-workers";
    case DrillFault::StopWorker:
      return "stop-worker";
    case DrillFault::KillSupervisor:
      return "kill-supervisor";
    case DrillFault::Terminate:
      return "terminate";
    case DrillFault::DamageCheckpoint:
      return "damage-checkpoint";
  }
  return "?";
}

DrillFault drill_fault_of(const std::string& name) {
  std::vector<std::string> names;
  for (const DrillFault fault : drill_faults()) {
    if (name == drill_fault_name(fault)) return fault;
    names.emplace_back(drill_fault_name(fault));
  }
  throw InputError("drill", fmt::format("there is no fault '{}'; one of {}", name,
                                        fmt::join(names, ", ")));
}

Json DrillResult::to_json() const {
  return {{"fault", fault},
          {"survived", survived},
          {"same_losses", same_losses},
          {"at_step", at_step},
          {"steps_redone", steps_redone},
          {"seconds_to_next_step", seconds_to_next_step},
          {"cause", cause}};
}

std::vector<DrillResult> run_drill(const std::vector<DrillFault>& faults,
                                   const DrillOptions& options) {
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

}  // namespace longhaul::cluster
