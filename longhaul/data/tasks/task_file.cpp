#include "longhaul/data/tasks/task_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <unordered_set>
#include <utility>

#include "longhaul/base/json.h"
#include "longhaul/base/json/json_fields.h"
#include "longhaul/base/text.h"

namespace longhaul::data {
namespace {

constexpr const char* kAdvice =
    "write the file with lm-eval 0.4.13: lm_eval --model dummy --tasks NAME "
    "--log_samples --output_path DIR";

/// What a line says beside its question.
struct Said {
  int64_t line = 0;
  std::string target;
  std::vector<double> scores;  ///< by metric
};

/// A file as it is read: its task, and by question and request what a model once said.
struct ReadTask {
  TaskFile task;
  std::vector<Said> said;
  std::vector<TaskAnswer> answers;

  std::string place(size_t question) const {
    return fmt::format("{}: line {}", task.path.string(), said[question].line);
  }
};

[[noreturn]] void refuse_line(const std::string& what, const std::string& problem) {
  throw InputError("tasks", what + ": " + problem);
}

const char* words_of(TaskKind kind) {
  if (kind == TaskKind::MultipleChoice) return "several requests";
  return kind == TaskKind::Rolling ? "one text" : "one context and continuation";
}

/// Returns the metrics that are computed here for a kind, separated by spaces.
const char* known_metrics(TaskKind kind) {
  if (kind == TaskKind::MultipleChoice) return "acc acc_norm acc_bytes exact_match";
  return kind == TaskKind::Rolling ? "word_perplexity byte_perplexity bits_per_byte"
                                   : "perplexity acc";
}

/// Reads a number as Python's str() writes it.
double number_of(const JsonFields& fields, const Json& text) {
  double value = 0.0;
  if (text.is_string()) {
    const auto& digits = text.get_ref<const std::string&>();
    const char* const end = digits.data() + digits.size();
    if (std::from_chars(digits.data(), end, value).ptr == end && !digits.empty()) {
      return value;
    }
  }
  fields.fail("filtered_resps holds " + json_text(text) + ", which is no number");
}

/// Reads the answer to one request: ["-1.5", "True"], or with a rolling log-likelihood
/// "-1.5".
TaskAnswer answer_of(const JsonFields& fields, TaskKind kind, const Json& said) {
  if (kind == TaskKind::Rolling) return {number_of(fields, said), false};
  if (!said.is_array() || said.size() != 2 || (said[1] != "True" && said[1] != "False")) {
    fields.fail("filtered_resps holds " + json_text(said) +
                ", which is no log-likelihood with True or False");
  }
  return {number_of(fields, said[0]), said[1] == "True"};
}

/// Reads the requests of a line: the members gen_args_0, gen_args_1 ... of `arguments`,
/// each with arg_0 and arg_1.
std::vector<TaskRequest> requests_of(const JsonFields& fields, const std::string& what,
                                     TaskKind& kind) {
  const Json& arguments = fields.field("arguments");
  std::vector<TaskRequest> requests;
  for (size_t i = 0; arguments.is_object() && i < arguments.size(); ++i) {
    const std::string name = fmt::format("gen_args_{}", i);
    if (!arguments.contains(name)) fields.fail("arguments has no " + name);
    const JsonFields one = fields.inside(arguments[name]);
    if (!one.has("arg_1")) {
      requests.push_back({"", one.get<std::string>("arg_0")});
      kind = TaskKind::Rolling;
    } else if (one.field("arg_1").is_object()) {
      refuse_line(what,
                  "the task has the model generate text (generate_until); only tasks of "
                  "log-likelihoods are measured here");
    } else {
      requests.push_back({one.get<std::string>("arg_0"), one.get<std::string>("arg_1")});
      kind = TaskKind::LogLikelihood;
    }
  }
  if (requests.empty()) fields.fail("arguments has no gen_args_0: no question is there");
  if (requests.size() > 1 && kind == TaskKind::Rolling) {
    fields.fail(fmt::format("{} texts stand in one question", requests.size()));
  }
  if (requests.size() > 1) kind = TaskKind::MultipleChoice;
  return requests;
}

/// Takes the metrics that are computed here from those of the first line.
void take_metrics(const JsonFields& fields, const std::string& what, TaskFile& task) {
  for (const Json& metric : fields.list("metrics")) {
    if (!metric.is_string()) fields.fail("metrics holds " + json_text(metric));
    const auto& name = metric.get_ref<const std::string&>();
    const bool known = has_word(known_metrics(task.kind), name);
    (known ? task.metrics : task.left_out).push_back(name);
  }
  if (std::ranges::count(task.left_out, "acc_mutual_info") > 0) {
    refuse_line(what,
                "acc_mutual_info doubles the requests of each question by some without a "
                "context; take the metric out of the task and write the samples again");
  }
  if (task.metrics.empty()) {
    refuse_line(what,
                fmt::format("of the task's metrics ({}) none is computed here ({})",
                            fmt::join(task.left_out, ", "), known_metrics(task.kind)));
  }
}

/// Reads the recorded score of each metric, and for rolling log-likelihoods the size of
/// the text beside it.
void take_scores(const JsonFields& fields, const TaskFile& task, TaskQuestion& question,
                 Said& said) {
  for (const std::string& metric : task.metrics) {
    const Json& value = fields.field(metric.c_str());
    const bool pair = task.kind == TaskKind::Rolling;
    if (pair && value.is_array() && value.size() == 2 && value[0].is_number() &&
        value[1].is_number() && value[1].get<double>() > 0.0) {
      said.scores.push_back(value[0].get<double>());
      question.sizes.push_back(value[1].get<double>());
    } else if (!pair && (value.is_number() || value.is_boolean())) {
      said.scores.push_back(value.is_boolean() ? static_cast<double>(value.get<bool>())
                                               : value.get<double>());
    } else {
      fields.fail(fmt::format("{} is {}, and {} was expected", metric, json_text(value),
                              pair ? "a log-likelihood with a size" : "a number"));
    }
  }
}

void take_line(std::string_view text, int64_t line, ReadTask& read) {
  TaskFile& task = read.task;
  const std::string what = fmt::format("{}: line {}", task.path.string(), line);
  const Json json = parse_json(text, what);
  const JsonFields fields(json, "tasks", what, kAdvice);
  TaskKind kind = TaskKind::LogLikelihood;
  std::vector<TaskRequest> requests = requests_of(fields, what, kind);
  const bool first = task.questions.empty();
  if (first) {
    task.kind = kind;
    take_metrics(fields, what, task);
  }
  // A question may have a single choice left.
  const bool one_choice =
      task.kind == TaskKind::MultipleChoice && kind == TaskKind::LogLikelihood;
  if (kind != task.kind && !one_choice) {
    fields.fail(fmt::format("a question has {}, and the first one of the file has {}",
                            words_of(kind), words_of(task.kind)));
  }
  TaskQuestion question{fields.get<int64_t>("doc_id"), task.requests.size(), 0, {}, {}};
  Said said{line, "", {}};
  const Json& responses = fields.list("filtered_resps");
  if (responses.size() != requests.size()) {
    fields.fail(fmt::format("filtered_resps has {} answers to {} requests",
                            responses.size(), requests.size()));
  }
  for (const Json& response : responses) {
    read.answers.push_back(answer_of(fields, task.kind, response));
  }
  std::ranges::move(requests, std::back_inserter(task.requests));
  question.end = task.requests.size();
  if (task.kind == TaskKind::MultipleChoice) {
    said.target = fields.get<std::string>("target");
  }
  take_scores(fields, task, question, said);
  task.questions.push_back(std::move(question));
  read.said.push_back(std::move(said));
}

// The rules by which the right choices follow from a line. lm-eval writes a target as
// text, whatever it was.
enum class TargetForm { Number, Text, Score };
struct TaskRules {
  std::string delimiter;
  TargetForm form;
};

using Choices = std::vector<int64_t>;

/// Returns the numbers of "2", "True" or "[0, 2]", and nothing for another text.
std::optional<Choices> numbers_in(std::string_view target) {
  if (target == "True" || target == "False") return Choices{target == "True" ? 1 : 0};
  const bool list = target.starts_with('[') && target.ends_with(']');
  Choices numbers;
  for (const std::string_view part :
       split(list ? target.substr(1, target.size() - 2) : target, ',')) {
    const std::string_view digits = trimmed(part);
    const char* const end = digits.data() + digits.size();
    int64_t number = 0;
    if (digits.empty() || std::from_chars(digits.data(), end, number).ptr != end) {
      return std::nullopt;
    }
    numbers.push_back(number);
  }
  if (!list && numbers.size() != 1) return std::nullopt;
  return numbers;
}

/// Returns the right choices of a question by these rules, and nothing where its target
/// has no such form. A number that no choice has is right nowhere, as in lm-eval.
std::optional<Choices> right_choices(const ReadTask& read, size_t number,
                                     const TaskRules& rules) {
  const TaskQuestion& question = read.task.questions[number];
  const std::string& target = read.said[number].target;
  const auto choices = static_cast<int64_t>(question.end - question.first);
  if (rules.form == TargetForm::Number) {
    auto numbers = numbers_in(target);
    if (numbers) std::erase_if(*numbers, [&](auto n) { return n < 0 || n >= choices; });
    return numbers;
  }
  if (rules.form == TargetForm::Text) {
    for (int64_t i = 0; i < choices; ++i) {
      const auto& request = read.task.requests[question.first + static_cast<size_t>(i)];
      if (request.continuation == rules.delimiter + target) return Choices{i};
    }
    return std::nullopt;
  }
  // The choices stand in the contexts, and the target is what follows all of them. Of two
  // choices the recorded score tells the right one.
  const auto acc = std::ranges::find(read.task.metrics, "acc");
  if (choices != 2 || acc == read.task.metrics.end()) return std::nullopt;
  const auto& answers = read.answers;
  const bool second =
      answers[question.first + 1].log_prob > answers[question.first].log_prob;
  const bool hit =
      read.said[number].scores[static_cast<size_t>(acc - read.task.metrics.begin())] ==
      1.0;
  return Choices{second == hit ? 1 : 0};
}

/// Sets the right choices and the lengths of all choices by these rules. Returns what
/// speaks against the rules; an empty text if nothing does.
std::string apply(const TaskRules& rules, ReadTask& read) {
  TaskFile& task = read.task;
  task.delimiter = rules.delimiter;
  const int64_t outside = count_code_points(rules.delimiter);
  for (TaskRequest& request : task.requests) {
    request.characters = count_code_points(request.continuation) - outside;
    request.bytes = std::ssize(request.continuation) - std::ssize(rules.delimiter);
  }
  bool any_right = task.kind != TaskKind::MultipleChoice;
  for (size_t i = 0; i < task.questions.size(); ++i) {
    TaskQuestion& question = task.questions[i];
    if (task.kind == TaskKind::MultipleChoice) {
      auto right = right_choices(read, i, rules);
      if (!right) {
        return fmt::format(
            "{}: the target \"{}\" is neither the number nor the text of "
            "one of {} choices; {}",
            read.place(i), read.said[i].target, question.end - question.first, kAdvice);
      }
      any_right = any_right || !right->empty();
      question.right = std::move(*right);
    }
    const std::vector<double> scores = scores_of(task, question, read.answers);
    for (size_t m = 0; m < scores.size(); ++m) {
      if (scores[m] == read.said[i].scores[m]) continue;
      return fmt::format(
          "{}: {} of the answers in the file is {} by lm-eval's rules, and the file says "
          "{}: the task has rules of its own (process_results), which are not known here",
          read.place(i), task.metrics[m], scores[m], read.said[i].scores[m]);
    }
  }
  if (any_right) return "";
  return fmt::format(
      "{}: no question has a right choice among its {} targets, as in "
      "test data without labels; take a split of the task that has them",
      task.path.string(), task.questions.size());
}

/// Returns the rules that a file may follow, the most common ones first.
std::vector<TaskRules> possible_rules(const TaskFile& task) {
  std::string common = task.requests.front().continuation;
  bool same_context = true;
  for (const TaskQuestion& question : task.questions) {
    for (size_t i = question.first; i < question.end; ++i) {
      const TaskRequest& request = task.requests[i];
      const auto apart = std::ranges::mismatch(common, request.continuation);
      common.erase(apart.in1, common.end());
      same_context =
          same_context && request.context == task.requests[question.first].context;
    }
  }
  common.resize(std::min(common.find_first_not_of(" \t\n"), common.size()));
  std::vector<std::string> delimiters;
  if (common.starts_with(' ')) delimiters.emplace_back(" ");
  if (!common.empty() && common != " ") delimiters.push_back(common);
  delimiters.emplace_back("");
  std::vector<TaskRules> rules;
  for (const TargetForm form : {TargetForm::Number, TargetForm::Text}) {
    for (const std::string& delimiter : delimiters) rules.push_back({delimiter, form});
  }
  if (!same_context) rules = {{delimiters.front(), TargetForm::Score}};
  return rules;
}

void refuse_double(const ReadTask& read) {
  std::unordered_set<int64_t> seen;
  for (size_t i = 0; i < read.said.size(); ++i) {
    if (seen.insert(read.task.questions[i].doc_id).second) continue;
    fail_input("tasks",
               "{}: doc_id {} stands there for the second time: a file holds one task, "
               "by one filter",
               read.place(i), read.task.questions[i].doc_id);
  }
}

}  // namespace

TaskFile read_task_file(const fs::path& path) {
  ReadTask read;
  read.task.path = path;
  const MappedFile file(path);
  int64_t line = 0;
  for (const std::string_view text : lines_of(file.text())) {
    ++line;
    if (!trimmed(text).empty()) take_line(text, line, read);
  }
  if (read.task.questions.empty()) {
    fail_input("tasks", "{}: holds no question; {}", path.string(), kAdvice);
  }
  refuse_double(read);
  std::string problem;
  for (const TaskRules& rules : possible_rules(read.task)) {
    std::string against = apply(rules, read);
    if (against.empty()) return std::move(read.task);
    if (problem.empty()) problem = std::move(against);
  }
  throw InputError("tasks", problem);
}

}  // namespace longhaul::data
