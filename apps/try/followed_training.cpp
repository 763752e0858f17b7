#include "apps/try/followed_training.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/monitor/sparkline.h"
#include "longhaul/monitor/terminal_writer.h"
#include "longhaul/run/files.h"
#include "longhaul/system/terminal.h"

namespace longhaul::apps {
namespace {

constexpr double kBetweenLooks = 0.25;
constexpr size_t kCurveColumns = 40;

}  // namespace

FollowedTraining::FollowedTraining(fs::path run_dir, FollowOptions options)
    : dir_(std::move(run_dir)), options_(options) {
  options_.draws = options_.draws && system::is_terminal(STDOUT_FILENO);
}

void FollowedTraining::look() {
  if (watch_.seconds() < next_look_) return;
  next_look_ = watch_.seconds() + kBetweenLooks;
  try {
    if (!run_) run_.emplace(dir_);
    run_->refresh();
    if (watch_.seconds() > options_.most_seconds && !asked_to_stop_ &&
        run_->records().last() != nullptr) {
      write_text_durable(dir_ / run::kStopFile, "");
      asked_to_stop_ = true;
    }
  } catch (const Error&) {
    return;  // nothing is there yet, or a file is just being replaced
  }
  if (options_.draws) draw();
}

void FollowedTraining::finish() {
  next_look_ = 0.0;
  options_.draws = false;
  look();
  if (drawn_) std::fputs("\r\033[K", stdout);
  std::fflush(stdout);
}

std::vector<double> FollowedTraining::losses() const {
  std::vector<double> values;
  const monitor::Records& records = run_->records();
  for (size_t i = 0; i < records.counted().size(); ++i) {
    values.push_back(records.counted_at(i).loss);
  }
  return values;
}

void FollowedTraining::draw() {
  const run::StepRecord* last = run_->records().last();
  if (last == nullptr) return;
  std::string figures = fmt::format("  loss {:.3f}  step {}", last->loss, last->step);
  if (const auto steps = run_->last_step()) {
    const double left = static_cast<double>(*steps - last->step) * last->step_time;
    figures += fmt::format(" of {}  {} left", *steps, human_duration(left));
  }
  const size_t width = monitor::Terminal::window().width;
  const size_t room = width > figures.size() + 4 ? width - figures.size() - 4 : 0;
  // The terminal may be gone. The training must still be followed then.
  std::fputs(
      fmt::format("\r\033[K  {}{}",
                  monitor::sparkline(losses(), std::min(room, kCurveColumns)), figures)
          .c_str(),
      stdout);
  std::fflush(stdout);
  drawn_ = true;
}

double FollowedTraining::seconds_of_steps() const {
  double seconds = 0.0;
  if (!run_) return seconds;
  for (const run::StepRecord& record : run_->records().all()) seconds += record.step_time;
  return seconds;
}

const run::StepRecord& FollowedTraining::last_record() const {
  const run::StepRecord* last = run_ ? run_->records().last() : nullptr;
  if (last != nullptr) return *last;
  throw Error(ErrorKind::Internal, "try", dir_.string() + " has no step");
}

double FollowedTraining::sequences_per_s() const {
  const double last = last_record().seqs_per_s;
  const double middle = monitor::median_throughput(run_->records());
  return std::isfinite(middle) ? middle : last;
}

std::string FollowedTraining::summary() const {
  const int64_t step = last_record().step;
  const std::vector<double> values = losses();
  std::string text = fmt::format(
      "  {}  loss {:.3f} to {:.3f} in {}, {}", monitor::sparkline(values, kCurveColumns),
      values.front(), values.back(), counted(std::ssize(values), "step"),
      human_duration(seconds_of_steps()));
  const auto& validations = run_->records().validations();
  if (!validations.empty() && validations.back().step == step) {
    text += fmt::format("; held-out text {:.3f} to {:.3f}", validations.front().loss,
                        validations.back().loss);
  }
  if (const auto last = run_->last_step(); last && step < *last) {
    text += fmt::format("; ended before step {}, since the time was over", *last);
  }
  return text;
}

}  // namespace longhaul::apps
