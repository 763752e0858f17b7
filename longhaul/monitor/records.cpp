#include "longhaul/monitor/records.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

#include "longhaul/base/error.h"
#include "longhaul/monitor/line_tail.h"
#include "longhaul/run/files.h"

namespace longhaul::monitor {
namespace {

namespace dom = simdjson::dom;
static_assert(LineTail::kPadding >= simdjson::SIMDJSON_PADDING);

constexpr size_t kMaxRecordDepth = 16;
constexpr int64_t kMostSteps = int64_t{1} << 53;
constexpr size_t kLongestName = 200;

/// What a line may hold; step, attempt and time must be there.
struct Line {
  StepRecord step;
  double seconds = 0.0;
  std::optional<std::string_view> validation;
  bool has_step = false;
  bool has_time = false;
  bool has_norm = false;
};

using Setter = void (*)(Line&, double);
const std::unordered_map<std::string_view, Setter>& number_setters() {
  static const std::unordered_map<std::string_view, Setter> setters = {
      {"loss", [](Line& l, double v) { l.step.loss = v; }},
      {"lr", [](Line& l, double v) { l.step.lr = v; }},
      {"step_time_s", [](Line& l, double v) { l.step.step_time = v; }},
      {"data_time_s", [](Line& l, double v) { l.step.data_time = v; }},
      {"seqs_per_s", [](Line& l, double v) { l.step.seqs_per_s = v; }},
      {"tokens_per_s", [](Line& l, double v) { l.step.tokens_per_s = v; }},
      {"mfu", [](Line& l, double v) { l.step.mfu = v; }},
      {"tokens", [](Line& l, double v) { l.step.tokens = v; }},
      {"memory_peak_bytes", [](Line& l, double v) { l.step.memory_peak = v; }},
      {"host_memory_bytes", [](Line& l, double v) { l.step.host_memory = v; }},
      {"epoch", [](Line& l, double v) { l.step.epoch = v; }},
      {"seconds", [](Line& l, double v) { l.seconds = v; }},
  };
  return setters;
}

double number_of(const dom::element& value) {
  double number = kNone;
  return value.get(number) == simdjson::SUCCESS ? number : kNone;
}

void take_field(const dom::key_value_pair& field, Line& line) {
  if (field.key == "step") {
    int64_t step = -1;
    line.has_step =
        field.value.get(step) == simdjson::SUCCESS && step >= 0 && step <= kMostSteps;
    line.step.step = step;
  } else if (field.key == "attempt") {
    int64_t attempt = 1;
    if (field.value.get(attempt) == simdjson::SUCCESS) {
      line.step.attempt =
          static_cast<int>(std::clamp<int64_t>(attempt, 0, 1'000'000'000));
    }
  } else if (field.key == "time") {
    line.step.time = number_of(field.value);
    line.has_time = line.step.time >= 0.0 && line.step.time <= kLastTime;
  } else if (field.key == "grad_norm") {
    line.step.grad_norm = number_of(field.value);
    line.has_norm = true;
  } else if (field.key == "validation") {
    std::string_view name;
    if (field.value.get(name) == simdjson::SUCCESS) {
      line.validation = name.substr(0, kLongestName);
    }
  } else if (const auto found = number_setters().find(field.key);
             found != number_setters().end()) {
    found->second(line, number_of(field.value));
  }
}

/// Seconds that a sane clock can have measured; NaN and negative ones are none.
double duration_of(double seconds) {
  return seconds > 0.0 ? std::min(seconds, kLastTime) : 0.0;
}

std::optional<Line> parse(std::string_view text) {
  thread_local dom::parser parser(LineTail::kLongestLine + 64);
  if (parser.max_depth() != kMaxRecordDepth || parser.capacity() < text.size()) {
    const auto error =
        parser.allocate(std::max<size_t>(text.size(), 4096), kMaxRecordDepth);
    LH_CHECK(error == simdjson::SUCCESS, "run directory",
             "no memory for a line of {} bytes", text.size());
  }
  dom::object object;
  if (parser.parse(text.data(), text.size(), false).get(object) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  Line line;
  for (double* number :
       {&line.step.loss, &line.step.grad_norm, &line.step.lr, &line.step.seqs_per_s,
        &line.step.tokens_per_s, &line.step.mfu, &line.step.tokens,
        &line.step.memory_peak, &line.step.host_memory, &line.step.epoch}) {
    *number = kNone;
  }
  for (const dom::key_value_pair field : object) take_field(field, line);
  if (!line.has_step || !line.has_time) return std::nullopt;
  line.step.step_time = duration_of(line.step.step_time);
  line.step.data_time = std::min(duration_of(line.step.data_time), line.step.step_time);
  line.seconds = duration_of(line.seconds);
  return line;
}

}  // namespace

void Records::add_line(std::string_view padded) {
  const std::optional<Line> line = parse(padded);
  if (line && line->validation) {
    if (validations_.size() >= kMost) return;
    validations_.push_back({line->step.step, line->step.attempt, line->step.time,
                            line->seconds, line->step.loss,
                            std::string(*line->validation)});
  } else if (line && line->has_norm) {
    add(line->step);
  } else {
    ++unreadable_;
  }
}

void Records::add(const StepRecord& record) {
  if (all_.size() >= kMost) {
    throw InputError("run directory",
                     std::string(kMetricsFile) + " has more than 20,000,000 lines");
  }
  all_.push_back(record);
  first_.try_emplace(record.attempt, record.step);
  if (record.attempt < newest_attempt_) {
    all_.back().counts = false;
    return;
  }
  newest_attempt_ = record.attempt;
  while (!counted_.empty() && all_[counted_.back()].step >= record.step) {
    all_[counted_.back()].counts = false;
    counted_.pop_back();
  }
  counted_.push_back(all_.size() - 1);
}

void Records::take_back(int64_t step, int attempt, double before) {
  while (!counted_.empty()) {
    StepRecord& last = all_[counted_.back()];
    if (last.step <= step || last.attempt > attempt || last.time > before) return;
    last.counts = false;
    counted_.pop_back();
  }
}

void Records::set_clocks(const std::function<double(int attempt)>& shift) {
  for (; set_steps_ < all_.size(); ++set_steps_) {
    all_[set_steps_].time += shift(all_[set_steps_].attempt);
  }
  for (; set_validations_ < validations_.size(); ++set_validations_) {
    ValidationRecord& one = validations_[set_validations_];
    one.time += shift(one.attempt);
  }
}

void Records::clear() { *this = Records(); }

bool Records::is_first_of_attempt(const StepRecord& record) const {
  const auto found = first_.find(record.attempt);
  return found != first_.end() && found->second == record.step;
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return kNone;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2.0;
}

double median_throughput(const Records& records) {
  std::vector<double> rates;
  std::vector<double> warm;
  for (const size_t at : records.counted()) {
    const StepRecord& record = records.all()[at];
    rates.push_back(record.seqs_per_s);
    if (!records.is_first_of_attempt(record)) warm.push_back(record.seqs_per_s);
  }
  return median(warm.empty() ? rates : warm);
}

}  // namespace longhaul::monitor
