#include "longhaul/run/step_record.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>

#include "longhaul/base/error.h"

namespace longhaul::run {
namespace {

namespace dom = simdjson::dom;
static_assert(kRecordPadding >= simdjson::SIMDJSON_PADDING);

constexpr size_t kMaxRecordDepth = 16;
constexpr int64_t kMostSteps = int64_t{1} << 53;
constexpr int64_t kMostAttempts = 1'000'000'000;
constexpr size_t kLongestName = 200;

// Keys that are read in ways of their own; all other numbers of a step are in kFigures.
constexpr const char* kAttemptKey = "attempt";
constexpr const char* kAppliedKey = "applied";
constexpr const char* kLossesKey = "losses";
constexpr const char* kPerplexityKey = "perplexity";
constexpr const char* kSecondsKey = "seconds";
constexpr const char* kFiguresKey = "metrics";
constexpr const char* kQuestionsKey = "questions";
constexpr size_t kMostFigures = 100;

struct Figure {
  std::string_view key;
  double StepRecord::* member;
  bool whole = false;   ///< written without a fraction
  bool if_any = false;  ///< left out where it is no number
};
constexpr Figure kFigures[] = {
    {kLossKey, &StepRecord::loss},
    {kGradNormKey, &StepRecord::grad_norm},
    {kLrKey, &StepRecord::lr},
    {"tokens", &StepRecord::tokens, true},
    {kStepTimeKey, &StepRecord::step_time},
    {"data_time_s", &StepRecord::data_time},
    {kSeqsPerSecondKey, &StepRecord::seqs_per_s},
    {kTokensPerSecondKey, &StepRecord::tokens_per_s},
    {kMfuKey, &StepRecord::mfu},
    {kMfuCausalKey, &StepRecord::mfu_causal},
    {"tflops_per_device", &StepRecord::tflops_per_device},
    {"peak_tflops_per_device", &StepRecord::peak_tflops_per_device},
    {kMemoryPeakKey, &StepRecord::memory_peak, true},
    {"host_memory_bytes", &StepRecord::host_memory, true},
    {"host_anonymous_bytes", &StepRecord::host_anonymous, true},
    {"host_file_bytes", &StepRecord::host_file, true},
    {"epoch", &StepRecord::epoch},
    {kExpertUseKey, &StepRecord::expert_use, false, true},
    {kExpertBusiestKey, &StepRecord::expert_busiest, false, true},
    {kRouterEntropyKey, &StepRecord::router_entropy, false, true},
    {kPairFigures[0].key, &StepRecord::rewards_chosen, false, true},
    {kPairFigures[1].key, &StepRecord::rewards_rejected, false, true},
    {kPairFigures[2].key, &StepRecord::rewards_margins, false, true},
    {kPairFigures[3].key, &StepRecord::rewards_accuracies, false, true},
    {kPairFigures[4].key, &StepRecord::logps_chosen, false, true},
    {kPairFigures[5].key, &StepRecord::logps_rejected, false, true},
};

/// What a line may hold; step and time must be there.
struct Line {
  StepRecord step;
  double seconds = 0.0;
  std::optional<std::string_view> validation;
  bool is_task = false;  ///< `validation` is the name of a task
  std::vector<TaskFigure> figures;
  int64_t questions = 0;
  bool has_step = false;
  bool has_time = false;
  bool has_norm = false;
};

double number_of(const dom::element& value) {
  double number = kNoFigure;
  return value.get(number) == simdjson::SUCCESS ? number : kNoFigure;
}

/// Reads the metrics of a task. The name of a standard error begins with that of its
/// metric, and so it comes later in the line, which is sorted.
void take_figures(const dom::element& value, Line& line) {
  dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return;
  for (const dom::key_value_pair field : object) {
    const std::string_view name = field.key.substr(0, kLongestName);
    const size_t metric =
        name.ends_with(kErrorSuffix) ? name.size() - kErrorSuffix.size() : 0;
    const auto found =
        std::ranges::find(line.figures, name.substr(0, metric), &TaskFigure::name);
    if (found != line.figures.end()) {
      found->error = number_of(field.value);
    } else if (line.figures.size() < kMostFigures) {
      line.figures.push_back({std::string(name), number_of(field.value)});
    }
  }
}

void take_field(const dom::key_value_pair& field, Line& line) {
  if (field.key == kStepKey) {
    int64_t step = -1;
    line.has_step =
        field.value.get(step) == simdjson::SUCCESS && step >= 0 && step <= kMostSteps;
    line.step.step = step;
  } else if (field.key == kAttemptKey) {
    int64_t attempt = 1;
    if (field.value.get(attempt) == simdjson::SUCCESS) {
      line.step.attempt =
          static_cast<int>(std::clamp<int64_t>(attempt, 0, kMostAttempts));
    }
  } else if (field.key == kTimeKey) {
    line.step.time = number_of(field.value);
    line.has_time = line.step.time >= 0.0 && line.step.time <= kLastTime;
  } else if (field.key == kValidationKey || field.key == kTaskKey) {
    std::string_view name;
    if (field.value.get(name) == simdjson::SUCCESS) {
      line.validation = name.substr(0, kLongestName);
      line.is_task = field.key == kTaskKey;
    }
  } else if (field.key == kFiguresKey) {
    take_figures(field.value, line);
  } else if (field.key == kQuestionsKey) {
    if (field.value.get(line.questions) != simdjson::SUCCESS) line.questions = 0;
  } else if (field.key == kSecondsKey) {
    line.seconds = number_of(field.value);
  } else if (field.key == kDataHashKey) {
    std::string_view digits;
    uint64_t hash = 0;
    if (field.value.get(digits) != simdjson::SUCCESS) return;
    const char* const end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, hash, 16);
    if (read.ec == std::errc() && read.ptr == end) line.step.data_hash = hash;
  } else if (field.key == kAppliedKey) {
    bool applied = true;
    if (field.value.get(applied) == simdjson::SUCCESS) line.step.applied = applied;
  } else if (const auto* const found =
                 std::ranges::find(kFigures, field.key, &Figure::key);
             found != std::end(kFigures)) {
    line.step.*found->member = number_of(field.value);
    line.has_norm = line.has_norm || found->key == kGradNormKey;  // a step's line
  }
}

/// Returns seconds that a sane clock can have measured; 0 for NaN and negative numbers.
double duration_of(double seconds) {
  return seconds > 0.0 ? std::min(seconds, kLastTime) : 0.0;
}

std::optional<Line> parse(std::string_view text) {
  if (text.size() > kLongestRecord) return std::nullopt;
  thread_local dom::parser parser(kLongestRecord + kRecordPadding);
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
  for (const Figure& figure : kFigures) line.step.*figure.member = kNoFigure;
  for (const dom::key_value_pair field : object) take_field(field, line);
  if (!line.has_step || !line.has_time) return std::nullopt;
  line.step.step_time = duration_of(line.step.step_time);
  line.step.data_time = std::min(duration_of(line.step.data_time), line.step.step_time);
  line.seconds = duration_of(line.seconds);
  return line;
}

}  // namespace

double ValidationRecord::perplexity() const { return std::exp(loss); }

std::string describe(std::span<const TaskFigure> figures) {
  std::string words;
  for (const TaskFigure& figure : figures) {
    words +=
        fmt::format("{}{} {:.4f}", words.empty() ? "" : ", ", figure.name, figure.value);
    if (std::isfinite(figure.error)) words += fmt::format(" +- {:.4f}", figure.error);
  }
  return words;
}

Json to_json(std::span<const TaskFigure> figures) {
  Json json = Json::object();
  for (const TaskFigure& figure : figures) {
    json[figure.name] = figure.value;
    if (std::isfinite(figure.error)) {
      json[figure.name + std::string(kErrorSuffix)] = figure.error;
    }
  }
  return json;
}

Json to_json(const StepRecord& record, const SourceTokens& sources,
             const PhaseMemory& memory) {
  Json of_sources = Json::object();
  for (const auto& [name, count] : sources) of_sources[name] = count;
  Json json = {{kStepKey, record.step},
               {kAttemptKey, record.attempt},
               {kSourceTokensKey, std::move(of_sources)},
               {kTimeKey, record.time}};
  for (const Figure& figure : kFigures) {
    const double value = record.*figure.member;
    if (figure.if_any && !std::isfinite(value)) continue;
    const bool whole = figure.whole && std::isfinite(value);
    json[std::string(figure.key)] =
        whole ? Json(static_cast<int64_t>(value)) : Json(value);
  }
  for (const auto& [name, value] : record.losses) json[kLossesKey][name] = value;
  for (const auto& [name, bytes] : memory) json[kPhaseMemoryKey][name] = bytes;
  if (!record.applied) json[kAppliedKey] = false;
  if (record.data_hash) json[kDataHashKey] = fmt::format("{:016x}", *record.data_hash);
  return json;
}

Json to_json(const ValidationRecord& record) {
  if (record.of_task()) {
    return {{kStepKey, record.step},
            {kAttemptKey, record.attempt},
            {kTaskKey, record.name},
            {kQuestionsKey, record.questions},
            {kFiguresKey, to_json(record.figures)},
            {kSecondsKey, record.seconds},
            {kTimeKey, record.time}};
  }
  Json json = {{kStepKey, record.step},       {kAttemptKey, record.attempt},
               {kValidationKey, record.name}, {kLossKey, record.loss},
               {kSecondsKey, record.seconds}, {kTimeKey, record.time}};
  if (!record.of_pairs()) json[kPerplexityKey] = record.perplexity();
  for (const PairFigure& figure : kPairFigures) {
    const double value = record.pairs.*figure.member;
    if (std::isfinite(value)) json[figure.key] = value;
  }
  return json;
}

RunRecord read_record(std::string_view padded) {
  const std::optional<Line> line = parse(padded);
  if (line && line->validation) {
    ValidationRecord record{line->step.step, line->step.attempt,
                            line->step.time, line->seconds,
                            line->step.loss, std::string(*line->validation),
                            line->step};
    if (!line->is_task) return record;
    if (line->figures.empty()) return {};
    record.figures = line->figures;
    record.questions = line->questions;
    return record;
  }
  if (line && line->has_norm) return line->step;
  return {};
}

}  // namespace longhaul::run
