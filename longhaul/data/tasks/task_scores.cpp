#include <algorithm>
#include <cmath>
#include <numbers>

#include "longhaul/base/error.h"
#include "longhaul/data/tasks/task_file.h"

namespace longhaul::data {
namespace {

/// Returns the index of the largest value as numpy.argmax does: the first of equal ones,
/// and the first that is not a number, if there is one.
int64_t arg_max(const std::vector<double>& values) {
  size_t best = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) return static_cast<int64_t>(i);
    if (values[i] > values[best]) best = i;
  }
  return static_cast<int64_t>(best);
}

double choice_score(const TaskFile& task, const TaskQuestion& question,
                    std::span<const TaskAnswer> answers, const std::string& metric) {
  const auto is_right = [&](int64_t choice) {
    return std::ranges::count(question.right, choice) > 0;
  };
  std::vector<double> values;
  for (size_t i = question.first; i < question.end; ++i) {
    const TaskRequest& request = task.requests[i];
    const int64_t parts = metric == "acc_norm"    ? request.characters
                          : metric == "acc_bytes" ? request.bytes
                                                  : 1;
    values.push_back(answers[i].log_prob / static_cast<double>(parts));
  }
  if (metric != "exact_match") return is_right(arg_max(values)) ? 1.0 : 0.0;
  const bool found = std::ranges::any_of(question.right, [&](int64_t choice) {
    return answers[question.first + static_cast<size_t>(choice)].is_greedy;
  });
  return found ? 1.0 : 0.0;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

/// Returns the standard error of the mean, with n - 1 in the deviation; NaN of one value.
double error_of_mean(const std::vector<double>& values) {
  if (values.size() < 2) return run::kNoFigure;
  const double mean = mean_of(values);
  double squares = 0.0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const auto count = static_cast<double>(values.size());
  return std::sqrt(squares / (count - 1.0)) / std::sqrt(count);
}

}  // namespace

std::vector<double> scores_of(const TaskFile& task, const TaskQuestion& question,
                              std::span<const TaskAnswer> answers) {
  std::vector<double> scores;
  for (const std::string& metric : task.metrics) {
    if (task.kind == TaskKind::MultipleChoice) {
      scores.push_back(choice_score(task, question, answers, metric));
      continue;
    }
    const TaskAnswer& answer = answers[question.first];
    const bool greedy = metric == "acc";
    scores.push_back(greedy ? static_cast<double>(answer.is_greedy) : answer.log_prob);
  }
  return scores;
}

std::vector<run::TaskFigure> task_figures(const TaskFile& task,
                                          std::span<const TaskAnswer> answers) {
  LH_CHECK(answers.size() == task.requests.size(), "tasks", "{} answers to {} requests",
           answers.size(), task.requests.size());
  std::vector<std::vector<double>> scores(task.metrics.size());
  std::vector<double> sizes(task.metrics.size(), 0.0);
  for (const TaskQuestion& question : task.questions) {
    const std::vector<double> found = scores_of(task, question, answers);
    for (size_t i = 0; i < found.size(); ++i) {
      scores[i].push_back(found[i]);
      if (task.kind == TaskKind::Rolling) sizes[i] += question.sizes[i];
    }
  }
  std::vector<run::TaskFigure> figures;
  for (size_t i = 0; i < scores.size(); ++i) {
    const std::string& name = task.metrics[i];
    const double mean = mean_of(scores[i]);
    run::TaskFigure figure{name, mean, error_of_mean(scores[i])};
    if (name == "perplexity") {
      figure.value = std::exp(-mean);
      figure.error *= figure.value;
    } else if (task.kind == TaskKind::Rolling) {
      const double nats = -mean * static_cast<double>(scores[i].size()) / sizes[i];
      figure.value = name == "bits_per_byte" ? nats / std::numbers::ln2 : std::exp(nats);
      figure.error = run::kNoFigure;
    }
    figures.push_back(figure);
  }
  return figures;
}

}  // namespace longhaul::data
