#include "apps/why/replayed_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <utility>

#include "apps/new_file.h"
#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/json.h"
#include "longhaul/base/process.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/cluster/process/command.h"
#include "longhaul/config/load.h"
#include "longhaul/run/events.h"
#include "longhaul/run/files.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/terminal.h"

namespace longhaul::apps {
namespace {

/// A replay may take as long as the steps took.
constexpr double kDeadline = 30.0 * 24.0 * 3600.0;

/// Returns settings that train a run's steps up to `last` again and leave out whatever
/// does not change them.
RunConfig replay_settings(RunConfig config, const fs::path& dir, int64_t last) {
  config.data.cache = data_cache_dir(config);
  config.data.validation.clear();
  config.run.dir = dir;
  config.run.stop_after = last;
  config.run.until.reset();
  config.run.budget.reset();
  config.run.price_per_node_hour.reset();
  config.run.expect.reset();
  config.run.golden.reset();
  CheckpointSection saves;
  saves.every = 0;
  saves.resume = config.checkpoint.resume;
  config.checkpoint = saves;
  config.validation.every = 0;
  config.validation.tasks.clear();
  config.log = {};
  config.log.tensorboard = false;
  config.log.layer_norms_every = 0;
  config.profile = {};
  config.debug.capture.reset();
  config.debug.delays.clear();
  // The steps that are recorded are those after what the run did about bad steps.
  config.resilience.on_bad_step = BadStepPolicy::Skip;
  config.resilience.peer_memory_every = 0;
  config.resilience.health_command.clear();
  return config;
}

/// Returns whether a checkpoint has the end that run.until or run.budget set for a run.
bool has_ending(const Json& state) {
  const auto schedule = state.find("schedule");
  return schedule != state.end() && schedule->contains("ending");
}

bool same(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

/// Returns whether two records may be of the same data: older programs wrote no hash.
bool may_have_same_data(const run::StepRecord& a, const run::StepRecord& b) {
  return !a.data_hash || !b.data_hash || *a.data_hash == *b.data_hash;
}

const run::StepRecord* record_of(const monitor::Records& records, int64_t step) {
  for (size_t i = records.counted().size(); i-- > 0;) {
    if (records.counted_at(i).step == step) return &records.counted_at(i);
  }
  return nullptr;
}

ScratchPath new_directory(const fs::path& dir) {
  refuse_existing(dir, "why");
  fs::create_directories(dir);
  return ScratchPath(dir);
}

class Replay {
 public:
  Replay(RunData& data, const StepPlace& step, const ReplayOptions& options)
      : data_(data),
        step_(step),
        number_(step.record.step),
        settings_(data.settings_of(step.record)),
        scratch_(new_directory(options.dir)),
        run_(options.dir / "run") {
    if (options.keep) scratch_.keep();
    find_start();
    find_ranks(options.ranks);
  }

  ReplayedStep run(const std::vector<StepPart>& parts) {
    const bool saves_before = result_.from + 1 < number_;
    fmt::print(stderr, "training {} again, from step {} to {}, in {}\n",
               counted(number_ - result_.from, "step"), result_.from + 1, number_,
               scratch_.path().string());
    if (saves_before) {
      train(number_ - 1);
      settings_.checkpoint.resume = {};
      before_ = run_ / run::kCheckpointsDir / run::step_directory_name(number_ - 1);
    }
    train(number_);
    compare();
    rank(parts);
    return result_;
  }

 private:
  /// Finds the checkpoint to begin from.
  void find_start() {
    ResumeFrom& resume = settings_.checkpoint.resume;
    const auto& saved = data_.checkpoints();
    const auto behind = saved.lower_bound(number_);
    if (behind != saved.begin()) {
      const auto& [step, path] = *std::prev(behind);
      result_.from = step;
      before_ = path;
      resume = {ResumeFrom::Kind::Path, 0, fs::absolute(path)};
      // Where the run ends was decided by its speed, and is not decided anew.
      auto& goes_on = settings_.schedule.continue_;
      const bool decided =
          settings_.run.ends_by_speed() && has_ending(checkpoint::read_state(path));
      if (decided && !goes_on) goes_on = ContinueKind::Keep;
    } else if (resume.kind != ResumeFrom::Kind::Path) {
      resume = {ResumeFrom::Kind::Never, 0, {}};
    } else {
      fail_input("why",
                 "step {}: the run has no checkpoint before it, and it went on from {}; "
                 "there is nothing of the run's own to train it again from",
                 number_, resume.path.string());
    }
  }

  void find_ranks(int64_t asked) {
    int64_t nodes = 1;
    for (const monitor::Event& event : data_.files().events()) {
      if (event.kind != run::StartEvent::kKind) continue;
      const auto begun = event.as<run::StartEvent>();
      if (begun.attempt != step_.record.attempt) continue;
      result_.ranks = begun.world;
      nodes = begun.nodes;
    }
    if (asked == 0 && nodes > 1) {
      fail_input("why",
                 "step {} was trained by {} on {} nodes, and --loss trains on this "
                 "machine; give --ranks a number that fits it and the run's layout",
                 number_, counted(result_.ranks, "rank"), nodes);
    }
    if (asked > 0) result_.ranks = asked;
  }

  void train(int64_t last) {
    const fs::path file = scratch_.path() / fmt::format("to_step_{}.toml", last);
    write_text_durable(file, to_toml(replay_settings(settings_, run_, last)));
    if (result_.ranks == 1) return start({this_program(), "train", file.string()});
    start({this_program(), "launch", "-n", std::to_string(result_.ranks), file.string()});
  }

  /// Runs a command to its end.
  void start(const std::vector<std::string>& words) {
    cluster::CommandOptions how;
    how.deadline_seconds = kDeadline;
    bool passed_on = false;
    how.look = [&] {
      return signals_.raised() == 0 || std::exchange(passed_on, true) ? 0
                                                                      : signals_.raised();
    };
    const cluster::CommandResult result = cluster::run_command(words, how);
    if (signals_.raised() != 0) {
      fail_temporary("why", "{}: the replay was ended",
                     system::signal_name(signals_.raised()));
    }
    if (result.ok()) return;
    const std::string what =
        fmt::format("`{}` ended with {}: {}", system::describe_command(words),
                    result.exit_code, trimmed(result.errors));
    if (result.exit_code == kExitSettings) throw InputError("why", what);
    if (result.exit_code == kExitTemporary) throw TemporaryError("why", what);
    throw Error(ErrorKind::Internal, "why", what);
  }

  void compare() {
    monitor::RunFiles again(run_);
    again.refresh();
    for (int64_t step = result_.from + 1; step <= number_; ++step) {
      const run::StepRecord* now = record_of(again.records(), step);
      const run::StepRecord* then = record_of(data_.files().records(), step);
      LH_CHECK(now != nullptr, "why", "the replay has no step {}", step);
      const bool other = then == nullptr || !may_have_same_data(*now, *then);
      const bool differs =
          other || !same(now->loss, then->loss) || !same(now->grad_norm, then->grad_norm);
      if (other && result_.other_data == 0) result_.other_data = step;
      if (differs && result_.first_different == 0) result_.first_different = step;
      if (step < number_) continue;
      result_.loss = now->loss;
      result_.grad_norm = now->grad_norm;
      result_.data_hash = now->data_hash;
    }
  }

  void rank(const std::vector<StepPart>& parts) {
    // Rows of whole documents are masked in any case.
    std::optional<bool> mask;
    if (settings_.data.pack == PackKind::Stream) mask = settings_.data.document_mask;
    const data::TokenBatch first = data_.read(step_, 0, mask);
    if (first.targets.size() > 1 || !first.pairs.empty() || !first.segments.empty()) {
      result_.unranked = "only the loss of next tokens is split by documents";
      return;
    }
    if (result_.other_data > 0) {
      result_.unranked = fmt::format(
          "from step {} on the replay had other data than the run. That is so where a "
          "run "
          "went back: the steps up to its next checkpoint cannot be trained again",
          result_.other_data);
      return;
    }
    if (before_.empty()) {
      result_.unranked = "no checkpoint has the weights with which the run began";
      return;
    }
    std::vector<DocumentLoss> losses(parts.size());
    Json rows = Json::array();
    size_t next = 0;
    for (int64_t i = 0; i < step_.sequences; ++i) {
      const data::TokenBatch row = data_.read(step_, i, mask);
      std::vector<int32_t> part_of(row.tokens.size(), -1);
      const size_t begin = next;
      for (; next < parts.size() && parts[next].sequence == i; ++next) {
        const data::DocumentPart& part = parts[next].part;
        for (int64_t at = part.begin; at < part.begin + part.tokens; ++at) {
          const auto place = static_cast<size_t>(at);
          part_of[place] = static_cast<int32_t>(next - begin);
          if (row.targets[0][place] != data::kIgnore) ++losses[next].targets;
        }
      }
      rows.push_back({{"tokens", row.tokens},
                      {"targets", row.targets[0]},
                      {"positions", row.positions},
                      {"document_start", row.document_start},
                      {"part_of", part_of},
                      {"parts", next - begin}});
    }
    const std::vector<double> sums = losses_of(std::move(rows));
    LH_CHECK(sums.size() == parts.size(), "why", "{} losses of {} parts", sums.size(),
             parts.size());
    for (size_t i = 0; i < sums.size(); ++i) losses[i].sum = sums[i];
    result_.losses = std::move(losses);
  }

  /// Lets longhaul-torch compute the loss of each part of the rows.
  std::vector<double> losses_of(Json rows) {
    const fs::path request = scratch_.path() / "rows.json";
    const fs::path answer = scratch_.path() / "losses.json";
    const bool fp32 = settings_.precision.compute == ComputeType::Fp32;
    const Json asked = {
        {"model", fs::absolute(before_).string()}, {"dtype", fp32 ? "fp32" : "bf16"},
        {"device", settings_.run.device},          {"fused", settings_.run.fused},
        {"seq_len", settings_.data.seq_len},       {"rows", std::move(rows)}};
    write_text_durable(request, json_text(asked));
    const fs::path program = fs::path(this_program()).parent_path() / "longhaul-torch";
    start({program.string(), kDocumentLossesVerb, request.string(), answer.string()});
    std::vector<double> sums;
    for (const Json& sum : read_json(answer)) {  // null is a sum that is not finite
      sums.push_back(sum.is_null() ? run::kNoFigure : sum.get<double>());
    }
    return sums;
  }

  RunData& data_;
  const StepPlace& step_;
  int64_t number_;
  RunConfig settings_;
  system::SignalWatch signals_;
  ScratchPath scratch_;
  fs::path run_;
  fs::path before_;  ///< a checkpoint with the weights before the step
  ReplayedStep result_;
};

}  // namespace

ReplayedStep replay_step(RunData& data, const StepPlace& step,
                         const std::vector<StepPart>& parts,
                         const ReplayOptions& options) {
  return Replay(data, step, options).run(parts);
}

}  // namespace longhaul::apps
