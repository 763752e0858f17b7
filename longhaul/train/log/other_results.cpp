#include "longhaul/train/log/other_results.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "longhaul/base/process.h"
#include "longhaul/train/log/environment.h"

namespace longhaul::train {
namespace {

constexpr const char* kTimeToTrainOfBert = "TimeToTrain";
/// The number of steps over which the scripts that log.results may name take the mean of
/// their throughput.
constexpr int64_t kMeanSteps = 10;

/// Returns a number to four decimal digits, as Python's round() does.
double to_four_digits(double value) {
  return std::isfinite(value) ? std::stod(fmt::format("{:.4f}", value)) : value;
}

/// Returns a time as Python's isoformat() writes it, in UTC.
std::string iso_time(double seconds) {
  const auto whole = static_cast<std::time_t>(std::floor(seconds));
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}+00:00", fmt::gmtime(whole),
                     static_cast<int64_t>((seconds - std::floor(seconds)) * 1e6));
}

/// Returns "LlamaConfig { ... }": what Python prints of a configuration.
std::string printed_model(const Json& config) {
  std::string name = "PretrainedConfig";
  if (const auto kinds = config.find("architectures");
      kinds != config.end() && kinds->is_array() && !kinds->empty()) {
    const auto kind = kinds->front().get<std::string>();
    name = kind.substr(0, kind.find("For")) + "Config";
  }
  return fmt::format("{} {}\n", name, json_text(config, 2));
}

/// Returns what Python prints of an optimizer that has a group of weights with decay and
/// a group of weights without.
std::string printed_optimizer(const OptimizerSection& optimizer) {
  std::string text = optimizer.kind == OptimizerKind::Lamb ? "Lamb (" : "AdamW (";
  const auto number = [](double value) { return json_text(Json(value)); };
  const double decays[] = {optimizer.weight_decay, 0.0};
  for (size_t group = 0; group < std::size(decays); ++group) {
    text += fmt::format(
        "\nParameter Group {}\n    betas: ({}, {})\n    eps: {}\n    lr: {}\n    "
        "weight_decay: {}\n",
        group, number(optimizer.betas[0]), number(optimizer.betas[1]),
        number(optimizer.eps), number(optimizer.lr), number(decays[group]));
  }
  return text + ")";
}

/// Returns the last part of a path, whether or not it ends with a slash.
std::string last_part(const fs::path& path) {
  return (path / "").parent_path().filename().string();
}

/// Returns the names of the data without their directories.
std::string data_names(const RunConfig& config) {
  std::vector<std::string> names;
  for (const TrainSource& source : config.data.train) {
    if (source.synthetic > 0) names.emplace_back("synthetic");
    for (const fs::path& path : source.path.entries) names.push_back(last_part(path));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Json environment_of_scripts() {
  Json variables = Json::object();
  for (const auto& [name, value] : logged_environment()) {
    if (name.starts_with("NEURON") || name.starts_with("XLA")) variables[name] = value;
  }
  return variables;
}

/// The counters, from 0, that a step has in the loops of the script whose form of
/// results.json is written.
struct Place {
  int64_t epoch = 0;
  int64_t round = 0;  ///< of shards, over all epochs: each replica reads one in a round
  int64_t file = 0;   ///< number of the round in its epoch, which counts from 1
};

/// Finds the Place of a step by the epoch of the step's record.
class Places {
 public:
  Places(const ResultsFacts& facts, const Json& ours)
      : by_shards_(facts.config.log.results == ResultsForm::Bert),
        rounds_(by_shards_ ? static_cast<double>(facts.shards) /
                                 ours.at("Data parallel degree").get<double>()
                           : 1.0),
        per_epoch_(by_shards_ ? std::max<int64_t>(1, facts.shards - 1) : 1) {}

  Place of(const run::StepRecord& record) const {
    const double done = std::isfinite(record.epoch) ? record.epoch * rounds_ : 0.0;
    // A step that ends a round belongs to the round.
    Place place;
    place.round = std::max<int64_t>(0, std::llround(std::ceil(done - 1e-9)) - 1);
    place.epoch = place.round / per_epoch_;
    place.file = 1 + place.round % per_epoch_;
    return place;
  }
  bool by_shards() const { return by_shards_; }

 private:
  bool by_shards_;
  double rounds_;  ///< rounds in which all data are read once
  int64_t per_epoch_;
};

/// The throughputs that the script whose form is written would have logged for this run.
struct Throughputs {
  struct Sample {
    int64_t step = 0;
    double value = 0.0;  ///< sequences a second
    bool warm = false;   ///< whether the samples of a start's beginning are over
  };
  std::vector<Sample> samples;

  double peak() const {
    double most = run::kNoFigure;
    for (const Sample& one : samples) most = std::fmax(most, one.value);
    return most;
  }
  double average(bool all) const {
    double sum = 0.0;
    int64_t count = 0;
    for (const Sample& one : samples) {
      if (!all && !one.warm) continue;
      sum += one.value;
      ++count;
    }
    if (count == 0) return all ? run::kNoFigure : average(true);
    return sum / static_cast<double>(count);
  }
  /// Returns the newest throughput up to a step.
  double at(int64_t step) const {
    const auto later = std::ranges::upper_bound(samples, step, {}, &Sample::step);
    return later == samples.begin() ? run::kNoFigure : std::prev(later)->value;
  }
};

/// Returns the throughputs at the steps that the script of the form logs. Each one is
/// over the steps of a window that begins anew with each start.
Throughputs throughputs_of(const ResultsFacts& facts, const monitor::Records& records) {
  const bool bert = facts.config.log.results == ResultsForm::Bert;
  const int64_t every = bert ? 1 : facts.config.log.every;
  const int64_t first = facts.config.log.results == ResultsForm::Nxd ? 1 : every;
  const auto size = static_cast<size_t>((kMeanSteps + every - 1) / every);
  struct Part {
    double seconds = 0.0;
    int64_t steps = 0;
  };
  Throughputs found;
  std::deque<Part> window;
  Part now;
  double before = 0.0;
  std::optional<int> attempt;
  size_t of_start = 0;
  for (size_t i = 0; i < records.counted().size(); ++i) {
    const run::StepRecord& record = records.counted_at(i);
    if (attempt != record.attempt) {
      attempt = record.attempt;
      before = record.time - record.step_time;
      window.clear();
      now = {};
      of_start = 0;
    }
    ++now.steps;
    now.seconds += std::max(record.time - before, record.step_time);
    before = record.time;
    if ((record.step - first) % every != 0) continue;
    window.push_back(std::exchange(now, {}));
    if (window.size() > size) window.pop_front();
    Part sum;
    for (const Part& part : window) {
      sum.seconds += part.seconds;
      sum.steps += part.steps;
    }
    const auto sequences =
        static_cast<double>(sum.steps * facts.config.batch.global_size);
    found.samples.push_back({record.step,
                             sum.seconds > 0.0 ? sequences / sum.seconds : run::kNoFigure,
                             of_start++ >= size});
  }
  return found;
}

/// Adds the metrics of each epoch, or of each round of shards.
void add_parts(const Places& places, const monitor::Records& records,
               const Throughputs& speed, int64_t accumulation, Json& metrics) {
  const size_t count = records.counted().size();
  for (size_t i = 0; i < count; ++i) {
    const run::StepRecord& record = records.counted_at(i);
    const Place place = places.of(record);
    if (i + 1 < count && places.of(records.counted_at(i + 1)).round == place.round) {
      continue;
    }
    Json at = {{"Epoch", place.epoch},
               {"Global step", record.step},
               {"Microstep", record.step * accumulation}};
    if (places.by_shards()) at["File index"] = place.file;
    const std::string time = iso_time(record.time);
    metrics.push_back(results_metric("Loss", record.loss, "", time, at));
    metrics.push_back(
        results_metric("Throughput", speed.at(record.step), "seq/s", time, at));
  }
}

}  // namespace

Json results_metric(const char* name, const Json& value, const char* units,
                    std::string timestamp, Json more) {
  return {{"MetricName", name},
          {"MeasuredValue", value},
          {"Units", units},
          {"Timestamp", std::move(timestamp)},
          {"AdditionalData", std::move(more)}};
}

double minutes_to_train(double seconds) { return to_four_digits(seconds / 60.0); }

bool is_time_to_train(const Json& name) {
  return name == kTimeToTrain || name == kTimeToTrainOfBert;
}

Json other_parameters(const ResultsFacts& facts, const Json& ours) {
  const RunConfig& config = facts.config;
  const ResultsForm form = config.log.results;
  Json theirs = Json::object();
  for (const char* same : {"World size", "Data parallel degree", "Seed", "Warmup steps"})
    theirs[same] = ours.at(same);
  theirs["Dataset"] = data_names(config);
  theirs["Model"] = ours.at("Model configuration").at("model_type");
  if (form == ResultsForm::Nxd) {
    theirs["Batch size"] = ours.at("Batch size per replica");
    theirs["Total steps"] = ours.at("Total steps");
    return theirs;
  }
  theirs["Batch size"] = ours.at("Batch size");
  theirs["Total steps"] =
      std::min(ours.at("Total steps").get<int64_t>(),
               config.run.stop_after.value_or(ours.at("Total steps").get<int64_t>()));
  theirs["Model configuration"] = printed_model(ours.at("Model configuration"));
  theirs["Optimizer"] = printed_optimizer(config.optimizer);
  theirs["Data type"] = "torch." + ours.at("Data type").get<std::string>();
  theirs[kAccumulationParameter] = ours.at(kAccumulationParameter);
  theirs["Environment variables"] = environment_of_scripts();
  if (form != ResultsForm::Bert) return theirs;
  const fs::path& model = config.model.config;
  theirs["Model"] = last_part(model.extension() == ".json" ? model.parent_path() : model);
  theirs["Sequence length"] = ours.at("Sequence length");
  const double per_round = static_cast<double>(facts.sequences) /
                           static_cast<double>(facts.shards) *
                           ours.at("Data parallel degree").get<double>();
  const auto sequences =
      static_cast<double>(config.checkpoint.every * config.batch.global_size);
  theirs["Shards per checkpoint"] =
      std::max<int64_t>(1, per_round > 0.0 ? std::llround(sequences / per_round) : 1);
  return theirs;
}

Json other_metrics(const ResultsFacts& facts, const Json& ours,
                   const monitor::Records& records, double seconds) {
  Json metrics = Json::array();
  const run::StepRecord* const last = records.last();
  if (last == nullptr) return metrics;
  const ResultsForm form = facts.config.log.results;
  const bool bert = form == ResultsForm::Bert;
  const Throughputs speed = throughputs_of(facts, records);
  const Places places(facts, ours);
  const auto accumulation = ours.at(kAccumulationParameter).get<int64_t>();
  Json at = {{"Epoch", places.of(*last).epoch}, {"Global step", last->step}};
  if (form != ResultsForm::Nxd) {
    at["Microstep"] = last->step * accumulation;
    add_parts(places, records, speed, accumulation, metrics);
  }
  const auto add = [&](const char* name, const char* of_bert, double value,
                       const char* units) -> Json& {
    metrics.push_back(
        results_metric(bert ? of_bert : name, value, units, iso_time(unix_time()), at));
    return metrics.back();
  };
  add("Final loss", "FinalLoss", last->loss, "");
  add(kTimeToTrain, kTimeToTrainOfBert, minutes_to_train(seconds), "minutes");
  Json& average = add("Average throughput", "AverageThroughput",
                      to_four_digits(speed.average(bert)), "seq/s");
  if (const auto& expect = facts.config.run.expect; bert && expect) {
    const double rate =
        expect->tokens_per_s / static_cast<double>(facts.config.data.seq_len);
    average["Expected"] = rate;
    average["Derived"] = (1.0 - expect->tolerance) * rate;
  }
  add("Peak throughput", "PeakThroughput", speed.peak(), "seq/s");
  return metrics;
}

}  // namespace longhaul::train
