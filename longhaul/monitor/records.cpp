#include "longhaul/monitor/records.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/monitor/line_tail.h"
#include "longhaul/run/files.h"

namespace longhaul::monitor {
static_assert(LineTail::kPadding >= run::kRecordPadding);
static_assert(LineTail::kLongestLine <= run::kLongestRecord);

void Records::add_line(std::string_view padded) {
  run::RunRecord record = run::read_record(padded);
  if (auto* const validation = std::get_if<run::ValidationRecord>(&record)) {
    if (validations_.size() < kMost) validations_.push_back({std::move(*validation)});
  } else if (const auto* const step = std::get_if<run::StepRecord>(&record)) {
    add(*step);
  } else {
    ++unreadable_;
  }
}

void Records::add(const run::StepRecord& record) {
  if (all_.size() >= kMost) {
    throw InputError("run directory",
                     std::string(run::kMetricsFile) + " has more than 20,000,000 lines");
  }
  all_.push_back({record});
  first_.try_emplace(record.attempt, record.step);
  if (record.attempt < newest_attempt_) {
    all_.back().counts = false;
    return;
  }
  newest_attempt_ = record.attempt;
  if (!counted_.empty() && all_[counted_.back()].step >= record.step) {
    take_back_validations([&](const auto& v) { return v.step >= record.step; });
  }
  while (!counted_.empty() && all_[counted_.back()].step >= record.step) {
    all_[counted_.back()].counts = false;
    counted_.pop_back();
  }
  counted_.push_back(all_.size() - 1);
}

/// Marks validations as taken back, from the newest on, until `taken` returns false for
/// one. They do not count any more.
template <typename Taken>
void Records::take_back_validations(Taken taken) {
  for (size_t i = validations_.size(); i-- > 0;) {
    if (!validations_[i].counts) continue;
    if (!taken(validations_[i])) return;
    validations_[i].counts = false;
  }
}

void Records::take_back(int64_t step, int attempt, double before) {
  take_back_validations([&](const ValidationRow& v) {
    return v.step > step && v.attempt <= attempt && v.time <= before;
  });
  while (!counted_.empty()) {
    StepRow& last = all_[counted_.back()];
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
    ValidationRow& one = validations_[set_validations_];
    one.time += shift(one.attempt);
  }
}

void Records::clear() { *this = Records(); }

bool Records::is_first_of_attempt(const run::StepRecord& record) const {
  const auto found = first_.find(record.attempt);
  return found != first_.end() && found->second == record.step;
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return run::kNoFigure;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2.0;
}

double median_throughput(const Records& records) {
  std::vector<double> rates;
  std::vector<double> warm;
  for (const size_t at : records.counted()) {
    const run::StepRecord& record = records.all()[at];
    rates.push_back(record.seqs_per_s);
    if (!records.is_first_of_attempt(record)) warm.push_back(record.seqs_per_s);
  }
  return median(warm.empty() ? rates : warm);
}

}  // namespace longhaul::monitor
