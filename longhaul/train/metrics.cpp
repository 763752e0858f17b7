#include "longhaul/train/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "longhaul/base/process.h"

namespace longhaul::train {

Json StepMetrics::to_json() const {
  return {{"step", step},
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
          {"memory_peak_bytes", memory_peak_bytes},
          {"host_memory_bytes", host_memory_bytes},
          {"epoch", epoch},
          {"time", time}};
}

std::string StepMetrics::to_line() const {
  return fmt::format(
      "step {} step_time {:.3f}s throughput {:.2f} seq/s {:.0f} tok/s mfu {:.1f}% loss {:.5f} "
      "grad norm {:.3f} lr {:.3e}",
      step, step_time_s, seqs_per_s, tokens_per_s, 100.0 * mfu, loss, grad_norm, lr);
}

FlopsPerToken flops_per_token(int64_t parameters_without_embedding, int64_t layers,
                              int64_t attention_width, int64_t seq_len) {
  const double dense = 6.0 * static_cast<double>(parameters_without_embedding);
  const double attention = static_cast<double>(layers) * static_cast<double>(attention_width) *
                           static_cast<double>(seq_len);
  return {dense + 12.0 * attention, dense + 6.0 * attention};
}

MetricsWriter::MetricsWriter(const fs::path& run_dir, Logger& log, int64_t log_every,
                             bool tensorboard)
    : log_(log),
      log_every_(log_every),
      metrics_(run_dir / "metrics.jsonl"),
      events_(run_dir / "events.jsonl") {
  if (tensorboard) tensorboard_.emplace(run_dir / "tensorboard");
  if (metrics_.repaired() > 0) {
    log_.warning(fmt::format("metrics.jsonl ended in a torn line of {} bytes, which was cut off",
                             metrics_.repaired()));
  }
}

void MetricsWriter::step(const StepMetrics& metrics) {
  const Json json = metrics.to_json();
  metrics_.append(json);
  if (tensorboard_) {
    for (const auto& [key, value] : json.items()) {
      if (key != "step") tensorboard_->scalar(key, metrics.step, value.get<double>());
    }
  }
  if (metrics.step % log_every_ == 0) log_.info(metrics.to_line());
}

void MetricsWriter::validation(int64_t step, int attempt, const std::string& name, double loss,
                               double perplexity, double seconds) {
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
  log_.info(fmt::format("validation step {} {} loss {:.5f} perplexity {:.3f}", step, name, loss,
                        perplexity));
}

void MetricsWriter::event(const std::string& kind, Json fields) {
  fields["event"] = kind;
  fields["time"] = unix_time();
  events_.append(fields);
}

namespace {

/// The last record of each step.
std::map<int64_t, Json> step_records(const fs::path& run_dir) {
  std::map<int64_t, Json> records;
  std::istringstream lines(read_text(run_dir / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    Json record = parse_json(line, "metrics.jsonl");
    if (record.contains("grad_norm")) records[record["step"].get<int64_t>()] = record;
  }
  return records;
}

Json metric(const char* name, double value, const char* units) {
  return {{"MetricName", name},
          {"MeasuredValue", value},
          {"Units", units},
          {"Timestamp", utc_now()},
          {"AdditionalData", nullptr}};
}

}  // namespace

void write_results(const fs::path& run_dir, const RunFacts& facts) {
  const auto records = step_records(run_dir);
  double seconds = 0.0;
  double peak = 0.0;
  for (const auto& [step, record] : records) {
    seconds += record["step_time_s"].get<double>();
    peak = std::max(peak, record["seqs_per_s"].get<double>());
  }
  const double sequences =
      static_cast<double>(facts.global_batch) * static_cast<double>(records.size());
  Json metrics = Json::array();
  if (!records.empty()) {
    metrics.push_back(metric("Final loss", records.rbegin()->second["loss"], ""));
    metrics.push_back(metric("Time to train", seconds / 60.0, "minutes"));
    metrics.push_back(metric("Average throughput", sequences / seconds, "seq/s"));
    metrics.push_back(metric("Peak throughput", peak, "seq/s"));
  }
  const Json parameters = {{"Model", facts.model},
                           {"World size", facts.world},
                           {"Data parallel degree", facts.data_parallel},
                           {"Batch size", facts.global_batch},
                           {"Total steps", facts.total_steps},
                           {"Seed", facts.seed},
                           {"Warmup steps", facts.warmup_steps},
                           {"Dataset", facts.dataset}};
  const Json results = {{"results", {{"parameters", parameters}, {"metrics", metrics}}}};
  write_text_atomic(run_dir / "results.json", results.dump(2) + "\n");
}

}  // namespace longhaul::train
