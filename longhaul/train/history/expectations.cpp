#include "longhaul/train/history/expectations.h"

#include <fmt/format.h>

#include <cmath>

#include "longhaul/base/text.h"
#include "longhaul/run/events.h"

namespace longhaul::train {
namespace {

monitor::Reference golden_of(const RunSection& settings) {
  if (!settings.golden) return {};
  if (!settings.golden->file.empty()) {
    return monitor::read_reference(settings.golden->file);
  }
  monitor::Reference golden;
  for (const GoldenLoss& one : settings.golden->losses) golden.loss[one.step] = one.loss;
  return golden;
}

int64_t steps_of_mean(const RunSection& settings) {
  return settings.expect ? settings.expect->steps : 1;
}

}  // namespace

Expectations::Expectations(const RunSection& settings)
    : settings_(settings),
      means_(steps_of_mean(settings)),
      golden_(golden_of(settings)) {}

std::vector<Miss> Expectations::look(const run::StepRecord& record, bool last) {
  std::vector<Miss> misses;
  if (settings_.expect) {
    means_.add(record);
    look_at_rate(last, record.step, misses);
  }
  if (settings_.golden) look_at_loss(record, misses);
  return misses;
}

void Expectations::look_at_rate(bool last, int64_t step, std::vector<Miss>& misses) {
  const ExpectedRate& wanted = *settings_.expect;
  const int64_t steps = means_.timed_steps();
  const bool short_run = last && !judged_;
  if (steps == 0 || (steps < wanted.steps && !short_run)) return;
  // The first step of a start warms up, so it is not judged alone while others follow.
  if (means_.warms_up() && !last) return;
  judged_ = true;
  const double rate = means_.tokens_per_s();
  const double least = wanted.tokens_per_s * (1.0 - wanted.tolerance);
  if (rate >= least) return;
  misses.push_back(
      {.event = run::kTooSlowEvent,
       .key = run::EndEvent::kByExpect,
       .why = fmt::format("throughput {:.6g} tok/s, the mean of {}, is below {:.6g}: "
                          "run.expect asks for {:.6g} less {:g}%",
                          rate, counted(steps, "step"), least, wanted.tokens_per_s,
                          100.0 * wanted.tolerance),
       .fields = {{"step", step},
                  {run::kTokensPerSecondKey, rate},
                  {"steps", steps},
                  {"expected", wanted.tokens_per_s},
                  {"tolerance", wanted.tolerance}},
       .stops = wanted.on_miss == MissPolicy::Stop});
  means_.clear();
}

void Expectations::look_at_loss(const run::StepRecord& record,
                                std::vector<Miss>& misses) {
  const auto golden = golden_.loss.find(record.step);
  if (golden == golden_.loss.end() || !std::isfinite(golden->second)) return;
  const GoldenLosses& wanted = *settings_.golden;
  const double most = wanted.tolerance * std::abs(golden->second);
  const bool within = std::abs(record.loss - golden->second) <= most;
  ++compared_;
  if (within) ++within_;
  const bool again = misses_;
  misses_ = !within;
  const bool stops = wanted.on_miss == MissPolicy::Stop;
  if (within || (again && !stops)) return;
  misses.push_back(
      {.event = run::kLossMissedEvent,
       .key = run::EndEvent::kByGolden,
       .why = fmt::format(
           "the loss {:.5f} of step {} is {:.2f}% from the golden loss "
           "{:.5f}: run.golden allows {:g}%",
           record.loss, record.step,
           100.0 * std::abs(record.loss - golden->second) / std::abs(golden->second),
           golden->second, 100.0 * wanted.tolerance),
       .fields = {{"step", record.step},
                  {"loss", std::isfinite(record.loss) ? Json(record.loss) : Json()},
                  {"expected", golden->second},
                  {"tolerance", wanted.tolerance}},
       .stops = stops});
}

std::string Expectations::summary() const {
  if (compared_ == 0) return "";
  const GoldenLosses& wanted = *settings_.golden;
  return fmt::format("golden losses: {} of {} within {:g}% of {}", within_,
                     counted(compared_, "step"), 100.0 * wanted.tolerance,
                     wanted.file.empty() ? "run.golden" : wanted.file.string());
}

}  // namespace longhaul::train
