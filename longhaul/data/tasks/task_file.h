#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/run/step_record.h"

namespace longhaul::data {

// The files of samples that lm-eval (0.4.13) writes with --log_samples. Such a file has
// the questions of a task as the model gets them, what a model answered, and how it was
// scored. So it tells a task's questions, and proves that they are scored here as there.

/// The kinds of tasks that ask for log-likelihoods, by lm-eval's names.
enum class TaskKind { MultipleChoice, LogLikelihood, Rolling };

/// What a model is asked: how likely the continuation is behind the context.
struct TaskRequest {
  std::string context;  ///< Rolling: empty
  std::string continuation;
  int64_t characters = 0;  ///< of the continuation without the task's delimiter
  int64_t bytes = 0;       ///< of the same as UTF-8
};

/// What a model answers to a request.
struct TaskAnswer {
  double log_prob = 0.0;   ///< of the continuation, nats
  bool is_greedy = false;  ///< whether each token of the continuation is the likeliest
};

/// A question: requests [first, end) of its file.
struct TaskQuestion {
  int64_t doc_id = 0;
  size_t first = 0;
  size_t end = 0;
  std::vector<int64_t> right;  ///< MultipleChoice: the right ones, counted from `first`
  std::vector<double> sizes;   ///< Rolling: by metric, the words or bytes of the text
};

/// A task. Its questions stand in the order of the file.
struct TaskFile {
  fs::path path;
  TaskKind kind = TaskKind::MultipleChoice;
  std::vector<std::string> metrics;   ///< in the order of the file
  std::vector<std::string> left_out;  ///< metrics of the file that are not computed here
  std::string delimiter;              ///< MultipleChoice: lm-eval's target_delimiter
  std::vector<TaskQuestion> questions;
  std::vector<TaskRequest> requests;
};

/// Reads a file of samples. What the file leaves open (the delimiter before a choice, and
/// whether a target is a number or a text) is found by scoring the recorded answers: each
/// recorded score must come out. Throws InputError with the line for anything else than
/// such a file, for tasks that generate text, for a question without choices or without a
/// target, and for a task whose scores follow other rules.
TaskFile read_task_file(const fs::path& path);

/// Returns the score of a question by each metric of its task: 0 or 1, or with
/// perplexities the log-likelihood. `answers` are those of all requests of the file.
std::vector<double> scores_of(const TaskFile& task, const TaskQuestion& question,
                              std::span<const TaskAnswer> answers);

/// Returns the metrics over all questions, as lm-eval adds them up, with the standard
/// error of each mean. The metrics of rolling log-likelihoods have no such error, as in
/// lm-eval. For `perplexity`, where lm-eval draws samples, the error is that of the mean
/// log-likelihood times the perplexity. `answers` are those of all requests of the file.
std::vector<run::TaskFigure> task_figures(const TaskFile& task,
                                          std::span<const TaskAnswer> answers);

}  // namespace longhaul::data
