#include "longhaul/train/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/base/progress.h"
#include "longhaul/monitor/goodput.h"
#include "longhaul/monitor/run_files.h"
#include "longhaul/run/events.h"
#include "longhaul/run/files.h"

namespace longhaul::train {
namespace {

constexpr const char* kTimeToTrain = "Time to train";

}  // namespace

Json StepMetrics::to_json() const {
  Json of_sources = Json::object();
  for (const auto& [name, count] : source_tokens) of_sources[name] = count;
  Json json = {{"step", step},
               {"attempt", attempt},
               {"tokens", tokens},
               {"loss", loss},
               {"grad_norm", grad_norm},
               {"lr", lr},
               {"step_time_s", step_time_s},
               {"data_time_s", data_time_s},
               {"seqs_per_s", seqs_per_s},
               {"tokens_per_s", tokens_per_s},
               {"mfu", mfu},
               {"mfu_causal", mfu_causal},
               {"tflops_per_device", tflops_per_device},
               {"peak_tflops_per_device", peak_tflops_per_device},
               {"memory_peak_bytes", memory_peak_bytes},
               {"host_memory_bytes", host_memory_bytes},
               {"epoch", epoch},
               {"source_tokens", std::move(of_sources)},
               {"time", time}};
  if (!applied) json["applied"] = false;
  return json;
}

std::string StepMetrics::to_line() const {
  return fmt::format(
      "step {} step_time {:.3f}s throughput {:.2f} seq/s {:.0f} tok/s mfu {:.1f}% loss "
      "{:.5f} "
      "grad norm {:.3f} lr {:.3e}{}",
      step, step_time_s, seqs_per_s, tokens_per_s, 100.0 * mfu, loss, grad_norm, lr,
      applied ? "" : " NOT APPLIED");
}

namespace {

std::function<void(const std::string&)> warn(Logger& log) {
  return [&log](const std::string& line) { log.warning(line); };
}

}  // namespace

MetricsWriter::MetricsWriter(const fs::path& run_dir, Logger& log, int64_t log_every,
                             bool tensorboard)
    : log_(log),
      log_every_(log_every),
      metrics_(run_dir / kMetricsFile, warn(log)),
      events_(run_dir / kEventsFile, warn(log)) {
  if (tensorboard) tensorboard_.emplace(run_dir / kTensorBoardDir);
  if (metrics_.repaired() > 0) {
    log_.warning(fmt::format("{} ended in a torn line of {} bytes, which was cut off",
                             kMetricsFile, metrics_.repaired()));
  }
}

void MetricsWriter::step(const StepMetrics& metrics) {
  const Json json = metrics.to_json();
  metrics_.append(json);
  if (tensorboard_) {
    for (const auto& [key, value] : json.items()) {
      // Events carry their own time, and a float has no room for it.
      if (key != "step" && value.is_number() && key != "time")
        tensorboard_->scalar(key, metrics.step, value.get<double>());
    }
    for (const auto& [name, count] : metrics.source_tokens) {
      tensorboard_->scalar("source_tokens/" + name, metrics.step,
                           static_cast<double>(count));
    }
  }
  if (metrics.step % log_every_ == 0) log_.info(metrics.to_line());
  if (last_step_ > 0) {
    const std::chrono::duration<double> spent =
        std::chrono::steady_clock::now() - started_;
    log_.status(progress_line("train", "steps", metrics.step, last_step_, spent.count(),
                              steps_before_));
  }
}

void MetricsWriter::set_goal(int64_t first_step, int64_t last_step) {
  steps_before_ = first_step - 1;
  last_step_ = last_step;
  started_ = std::chrono::steady_clock::now();
}

void MetricsWriter::validation(int64_t step, int attempt, const std::string& name,
                               double loss, double perplexity, double seconds) {
  metrics_.append({{"step", step},
                   {"attempt", attempt},
                   {"validation", name},
                   {"loss", loss},
                   {"perplexity", perplexity},
                   {"seconds", seconds},
                   {"time", unix_time()}});
  if (tensorboard_) {
    tensorboard_->scalar("validation/" + name + "/loss", step, loss);
    tensorboard_->scalar("validation/" + name + "/perplexity", step, perplexity);
  }
  log_.info(fmt::format("validation step {} {} loss {:.5f} perplexity {:.3f}", step, name,
                        loss, perplexity));
}

void MetricsWriter::event(const char* kind, Json fields) {
  events_.append(event_line(kind, std::move(fields)));
}

namespace {

/// What metrics.jsonl says about the whole run.
struct Summary {
  std::map<int64_t, Json> last;  ///< the last record of each step
  std::map<int, int64_t> first;  ///< per attempt its first step
  int64_t unreadable = 0;
};

Summary summarize(const fs::path& run_dir) {
  Summary sum;
  std::istringstream lines(read_text(run_dir / kMetricsFile, uint64_t{1} << 34));
  for (std::string line; std::getline(lines, line);) {
    try {
      Json record = parse_json(line, kMetricsFile);
      if (!record.contains("grad_norm")) continue;
      const auto step = record.at("step").get<int64_t>();
      (void)record.at("step_time_s").get<double>();
      sum.first.try_emplace(record.at("attempt").get<int>(), step);
      (void)record.at("seqs_per_s").get<double>();
      (void)record.at("loss");
      sum.last[step] = std::move(record);
    } catch (const InputError&) {
      ++sum.unreadable;
    } catch (const Json::exception&) {
      ++sum.unreadable;
    }
  }
  return sum;
}

struct Throughput {
  double average = 0.0;
  double peak = 0.0;
  int64_t steps = 0;
};

/// Sequences per second without the first step of each start, unless there is no other.
Throughput throughput_of(const Summary& sum, bool with_first) {
  Throughput out;
  double sequences = 0.0;
  double seconds = 0.0;
  for (const auto& [step, record] : sum.last) {
    if (!with_first && sum.first.at(record["attempt"].get<int>()) == step) continue;
    const auto rate = record["seqs_per_s"].get<double>();
    const auto time = record["step_time_s"].get<double>();
    sequences += rate * time;
    seconds += time;
    out.peak = std::max(out.peak, rate);
    ++out.steps;
  }
  if (out.steps == 0) return with_first ? out : throughput_of(sum, true);
  out.average = seconds > 0.0 ? sequences / seconds : 0.0;
  return out;
}

Json metric(const char* name, const Json& value, const char* units, Json more) {
  return {{"MetricName", name},
          {"MeasuredValue", value},
          {"Units", units},
          {"Timestamp", utc_now()},
          {"AdditionalData", std::move(more)}};
}

/// Wall time, by the ledger that `report` shows.
Json time_to_train(const fs::path& run_dir) {
  monitor::RunFiles run(run_dir);
  run.refresh();
  const monitor::Ledger ledger =
      monitor::make_ledger(run.records(), run.events(), std::nullopt);
  Json seconds = Json::object();
  for (size_t i = 0; i < monitor::kTimeClasses; ++i) {
    const auto kind = static_cast<monitor::TimeClass>(i);
    seconds[monitor::time_class_key(kind)] = ledger.seconds(kind);
  }
  return metric(kTimeToTrain, ledger.total_seconds() / 60.0, "minutes",
                {{"Steps", ledger.steps_counted},
                 {"Steps done again", ledger.steps_redone},
                 {"Starts", ledger.starts},
                 {"Seconds", std::move(seconds)}});
}

Json metrics_of(const Summary& sum, const fs::path& run_dir) {
  Json metrics = Json::array();
  if (sum.last.empty()) return metrics;
  const auto& [step, record] = *sum.last.rbegin();
  const Throughput speed = throughput_of(sum, false);
  metrics.push_back(metric("Final loss", record["loss"], "", {{"Step", step}}));
  metrics.push_back(time_to_train(run_dir));
  metrics.push_back(
      metric("Average throughput", speed.average, "seq/s", {{"Steps", speed.steps}}));
  metrics.push_back(metric("Peak throughput", speed.peak, "seq/s", nullptr));
  return metrics;
}

}  // namespace

int64_t write_results(const fs::path& run_dir, const RunFacts& facts) {
  const Summary sum = summarize(run_dir);
  const Json parameters = {{"Model", facts.model},
                           {"World size", facts.world},
                           {"Data parallel degree", facts.data_parallel},
                           {"Batch size", facts.global_batch},
                           {"Total steps", facts.total_steps},
                           {"Seed", facts.seed},
                           {"Warmup steps", facts.warmup_steps},
                           {"Dataset", facts.dataset}};
  const Json results = {
      {"results", {{"parameters", parameters}, {"metrics", metrics_of(sum, run_dir)}}}};
  write_text_atomic(run_dir / kResultsFile, results.dump(2) + "\n");
  return sum.unreadable;
}

void settle_time_to_train(const fs::path& run_dir) {
  const fs::path path = run_dir / kResultsFile;
  if (!fs::exists(path)) return;
  Json results = read_json(path);
  const Json::json_pointer place("/results/metrics");
  if (!results.contains(place) || !results.at(place).is_array()) return;
  for (Json& one : results.at(place)) {
    if (one.is_object() && one.value("MetricName", Json()) == kTimeToTrain) {
      one = time_to_train(run_dir);
    }
  }
  write_text_atomic(path, results.dump(2) + "\n");
}

}  // namespace longhaul::train
