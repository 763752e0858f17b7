#include "longhaul/train/log/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "longhaul/base/process.h"
#include "longhaul/base/text.h"
#include "longhaul/monitor/goodput.h"
#include "longhaul/monitor/run_files.h"
#include "longhaul/monitor/run_view.h"
#include "longhaul/run/files.h"
#include "longhaul/system/progress.h"

namespace longhaul::train {
namespace {

std::function<void(const std::string&)> warn(system::Logger& log) {
  return [&log](const std::string& line) { log.warning(line); };
}

/// Rates of a run; NaN, which JSON writes as null, where no step was measured.
struct Throughput {
  double average = run::kNoFigure;  ///< sequences per second
  double peak = run::kNoFigure;     ///< sequences per second
  double tokens = run::kNoFigure;   ///< tokens per second
  double mfu = run::kNoFigure;      ///< share of the devices' peak
  double tflops = run::kNoFigure;   ///< TFLOP/s per device
  int64_t steps = 0;
};

/// Computes the throughput without the first step of each start, unless there is no other
/// step.
Throughput throughput_of(const monitor::Records& records, bool with_first) {
  Throughput out;
  double sequences = 0.0;
  double tokens = 0.0;
  double mfu = 0.0;
  double tflops = 0.0;
  double seconds = 0.0;
  for (size_t i = 0; i < records.counted().size(); ++i) {
    const run::StepRecord& record = records.counted_at(i);
    if (!with_first && records.is_first_of_attempt(record)) continue;
    sequences += record.seqs_per_s * record.step_time;
    tokens += record.tokens_per_s * record.step_time;
    mfu += record.mfu * record.step_time;
    tflops += record.tflops_per_device * record.step_time;
    seconds += record.step_time;
    out.peak = std::fmax(out.peak, record.seqs_per_s);
    ++out.steps;
  }
  if (out.steps == 0) return with_first ? out : throughput_of(records, true);
  if (seconds <= 0.0) return out;
  out.average = sequences / seconds;
  out.tokens = tokens / seconds;
  out.mfu = mfu / seconds;
  out.tflops = tflops / seconds;
  return out;
}

Json metric(const char* name, const Json& value, const char* units, Json more) {
  return results_metric(name, value, units, utc_now(), std::move(more));
}

/// Returns the ledger of the wall time that `longhaul report` shows.
monitor::Ledger ledger_of(const monitor::RunFiles& run) {
  return monitor::make_ledger(run.records(), run.events(), std::nullopt);
}

/// Returns the wall time by classes.
Json time_to_train(const monitor::Ledger& ledger) {
  Json seconds = Json::object();
  for (size_t i = 0; i < monitor::kTimeClasses; ++i) {
    const auto kind = static_cast<monitor::TimeClass>(i);
    seconds[monitor::text_of(kind).key] = ledger.seconds(kind);
  }
  return metric(kTimeToTrain, ledger.total_seconds() / 60.0, "minutes",
                {{"Steps", ledger.steps_counted},
                 {"Steps done again", ledger.steps_redone},
                 {"Starts", ledger.starts},
                 {"Seconds", std::move(seconds)}});
}

/// Adds the newest loss of each validation set.
void add_validations(const monitor::Records& records, Json& metrics) {
  std::map<std::string, const run::ValidationRecord*> newest;
  for (const monitor::ValidationRow& one : records.validations()) {
    if (one.counts && !one.of_task()) newest[one.name] = &one;
  }
  for (const auto& [name, one] : newest) {
    Json more = {{"Validation set", name}, {"Global step", one->step}};
    if (!one->of_pairs()) more["Perplexity"] = one->perplexity();
    metrics.push_back(metric("Final validation loss", one->loss, "", std::move(more)));
  }
}

/// Returns the most memory that a rank has had, in bytes.
double memory_peak_of(const monitor::Records& records) {
  double peak = run::kNoFigure;
  for (const auto& record : records.all()) peak = std::fmax(peak, record.memory_peak);
  return peak;
}

Json metrics_of(const monitor::RunFiles& run, const Json& accumulation) {
  Json metrics = Json::array();
  const run::StepRecord* const last = run.records().last();
  if (last == nullptr) return metrics;
  const Throughput speed = throughput_of(run.records(), false);
  Json at = {{"Step", last->step}, {"Global step", last->step}, {"Epoch", last->epoch}};
  if (accumulation.is_number_integer()) {
    at["Microstep"] = last->step * accumulation.get<int64_t>();
  }
  const Json steps = {{"Steps", speed.steps}};
  metrics.push_back(metric("Final loss", last->loss, "", std::move(at)));
  metrics.push_back(time_to_train(ledger_of(run)));
  metrics.push_back(metric("Average throughput", speed.average, "seq/s", steps));
  metrics.push_back(metric("Peak throughput", speed.peak, "seq/s", nullptr));
  metrics.push_back(metric("Average token throughput", speed.tokens, "tok/s", steps));
  metrics.push_back(metric("MFU", speed.mfu, "", steps));
  metrics.push_back(
      metric("Average throughput per device", speed.tflops, "TFLOP/s", steps));
  metrics.push_back(metric("Peak memory", memory_peak_of(run.records()), "bytes",
                           {{"Tokens", last->tokens}}));
  add_validations(run.records(), metrics);
  return metrics;
}

}  // namespace

std::string log_line(const run::StepRecord& record, const RunningMeans& means) {
  const std::string mean = means.describe();
  return fmt::format(
      "step {} epoch {:.4f} step_time {:.3f}s throughput {:.2f} seq/s {:.0f} tok/s "
      "{:.4g} "
      "TFLOP/s per device mfu {:.1f}% loss {:.5f} grad norm {:.3f} lr {:.3e}{}{}{}",
      record.step, record.epoch, record.step_time, record.seqs_per_s, record.tokens_per_s,
      record.tflops_per_device, 100.0 * record.mfu, record.loss, record.grad_norm,
      record.lr, record.applied ? "" : " NOT APPLIED", mean.empty() ? "" : "; ", mean);
}

MetricsWriter::MetricsWriter(const fs::path& run_dir, system::Logger& log,
                             int64_t log_every, fs::path tensorboard, int64_t log_window)
    : log_(log),
      log_every_(log_every),
      tensorboard_dir_(std::move(tensorboard)),
      means_(log_window),
      metrics_(run_dir / run::kMetricsFile, warn(log)),
      events_(run_dir / run::kEventsFile, warn(log)) {
  if (metrics_.repaired() > 0) {
    log_.warning("{} ended in a torn line of {} bytes, which was cut off",
                 run::kMetricsFile, metrics_.repaired());
  }
}

void MetricsWriter::step(const run::StepRecord& record, const run::SourceTokens& sources,
                         const run::PhaseMemory& memory) {
  const Json json = to_json(record, sources, memory);
  metrics_.append(json);
  if (tensorboard_) {
    for (const auto& [key, value] : json.items()) {
      // TensorBoard's events carry step and time themselves, and a float is too small to
      // hold them.
      if (key != run::kStepKey && key != run::kTimeKey && value.is_number())
        tensorboard_->scalar(key, record.step, value.get<double>());
    }
    scalars(run::kSourceTokensKey, record.step, sources);
    scalars(run::kPhaseMemoryKey, record.step, memory);
  }
  means_.add(record);
  if (record.step % log_every_ == 0) log_.info(log_line(record, means_));
  if (last_step_ > 0) {
    const std::chrono::duration<double> spent =
        std::chrono::steady_clock::now() - started_;
    log_.status(system::progress_line("train", "steps", record.step, last_step_,
                                      spent.count(), steps_before_));
  }
}

void MetricsWriter::scalars(const char* key, int64_t step,
                            const std::vector<std::pair<std::string, int64_t>>& numbers) {
  for (const auto& [name, number] : numbers) {
    tensorboard_->scalar(fmt::format("{}/{}", key, name), step,
                         static_cast<double>(number));
  }
}

void MetricsWriter::phase_memory(int64_t step, int attempt,
                                 const run::PhaseMemory& memory) {
  Json bytes;
  for (const auto& [name, number] : memory) bytes[name] = number;
  event(run::event_line(
      run::kPhaseMemoryEvent,
      {{"attempt", attempt}, {"step", step}, {run::kPhaseMemoryKey, std::move(bytes)}}));
  if (tensorboard_) scalars(run::kPhaseMemoryKey, step, memory);
}

void MetricsWriter::begin(int64_t step, int64_t last_step) {
  if (!tensorboard_dir_.empty()) {
    // A new run's first record is the validation at step 0. The first record of a run
    // that goes on is that of the step after `step`.
    tensorboard_.emplace(tensorboard_dir_, step == 0 ? 0 : step + 1, warn(log_));
  }
  steps_before_ = step;
  last_step_ = last_step;
  started_ = std::chrono::steady_clock::now();
}

void MetricsWriter::text(const char* name, const std::string& lines) {
  if (tensorboard_) tensorboard_->text(name, steps_before_, lines);
}

void MetricsWriter::go_back(int64_t step) {
  if (tensorboard_) tensorboard_->begin_session(step + 1);
}

void MetricsWriter::task(const run::ValidationRecord& record) {
  metrics_.append(to_json(record));
  for (const run::TaskFigure& figure : record.figures) {
    if (!tensorboard_) break;
    const std::string tag =
        fmt::format("{}/{}/{}", run::kTaskKey, record.name, figure.name);
    tensorboard_->scalar(tag, record.step, figure.value);
    if (std::isfinite(figure.error)) {
      tensorboard_->scalar(tag + std::string(run::kErrorSuffix), record.step,
                           figure.error);
    }
  }
  log_.info("task step {} {} {} ({}, {:.1f} s)", record.step, record.name,
            run::describe(record.figures), counted(record.questions, "question"),
            record.seconds);
}

void MetricsWriter::validation(const run::ValidationRecord& record) {
  metrics_.append(to_json(record));
  if (tensorboard_) {
    const std::string tag = fmt::format("{}/{}/", run::kValidationKey, record.name);
    tensorboard_->scalar(tag + run::kLossKey, record.step, record.loss);
    if (!record.of_pairs()) {
      tensorboard_->scalar(tag + "perplexity", record.step, record.perplexity());
    }
    for (const run::PairFigure& figure : run::kPairFigures) {
      const double value = record.pairs.*figure.member;
      if (std::isfinite(value))
        tensorboard_->scalar(tag + figure.key, record.step, value);
    }
  }
  const std::string more =
      record.of_pairs()
          ? fmt::format("margin {:.4f} accuracy {:.3f}", record.pairs.rewards_margins,
                        record.pairs.rewards_accuracies)
          : fmt::format("perplexity {:.3f}", record.perplexity());
  log_.info("validation step {} {} loss {:.5f} {}", record.step, record.name, record.loss,
            more);
}

void MetricsWriter::expert_loads(const run::ExpertLoadsEvent& loads) {
  event(run::event_line(run::ExpertLoadsEvent::kKind, run::event_fields(loads)));
  if (!tensorboard_) return;
  for (const run::ExpertLoadsEvent::Layer& one : loads.layers) {
    const auto scalar = [&](const char* figure, double value) {
      tensorboard_->scalar(fmt::format("{}/layer_{}", figure, one.layer), loads.step,
                           value);
    };
    scalar(run::kExpertUseKey, one.effective / static_cast<double>(one.counts.size()));
    scalar(run::kRouterEntropyKey, one.entropy);
  }
}

void MetricsWriter::event(const Json& line) { events_.append(line); }

int64_t write_results(const fs::path& run_dir, const Json& parameters,
                      const ResultsFacts& facts) {
  monitor::RunFiles run(run_dir);
  run.refresh();
  Json said;
  if (facts.config.log.results == ResultsForm::Longhaul) {
    said = {
        {"parameters", parameters},
        {"metrics", metrics_of(run, parameters.value(kAccumulationParameter, Json()))}};
  } else {
    said = {{"parameters", other_parameters(facts, parameters)},
            {"metrics", other_metrics(facts, parameters, run.records(),
                                      ledger_of(run).total_seconds())}};
  }
  const Json results = {{"results", std::move(said)}};
  write_text_atomic(run_dir / run::kResultsFile, json_text(results, 2) + "\n");
  return run.records().unreadable();
}

int64_t last_step_of_metrics(const fs::path& run_dir) {
  monitor::RunFiles run(run_dir);
  run.refresh();
  const run::StepRecord* last = run.records().last();
  return last == nullptr ? 0 : last->step;
}

bool is_done(const fs::path& run_dir) {
  monitor::RunFiles run(run_dir);
  run.refresh();
  return monitor::is_done(run.events());
}

void settle_time_to_train(const fs::path& run_dir) {
  const fs::path path = run_dir / run::kResultsFile;
  if (!fs::exists(path)) return;
  Json results = read_json(path);
  const Json::json_pointer place("/results/metrics");
  if (!results.contains(place) || !results.at(place).is_array()) return;
  monitor::RunFiles run(run_dir);
  run.refresh();
  const Json before = results;
  const monitor::Ledger ledger = ledger_of(run);
  for (Json& one : results.at(place)) {
    if (!one.is_object() || !is_time_to_train(one.value("MetricName", Json()))) continue;
    const Json more = one.value("AdditionalData", Json());
    if (!more.contains("Seconds")) {
      one["MeasuredValue"] = minutes_to_train(ledger.total_seconds());
      continue;
    }
    Json now = time_to_train(ledger);
    if (one.value("MeasuredValue", Json()) != now["MeasuredValue"] ||
        more != now["AdditionalData"]) {
      one = std::move(now);
    }
  }
  if (results == before) return;
  write_text_atomic(path, json_text(results, 2) + "\n");
}

}  // namespace longhaul::train
