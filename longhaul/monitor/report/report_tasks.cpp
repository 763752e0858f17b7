#include "longhaul/monitor/report/report_tasks.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "longhaul/base/text.h"
#include "longhaul/monitor/html.h"
#include "longhaul/monitor/plain_text.h"

namespace longhaul::monitor {
namespace {

constexpr size_t kLongestTaskName = 60;
constexpr size_t kMostTaskCards = 50;
constexpr std::array<const char*, 4> kMetricStyles = {"a", "b", "c", "d"};

/// Adds the curves of a metric: its values, and those one standard error above and below.
void add_curves(const TaskCourse& task, const std::string& metric, const char* style,
                std::vector<Curve>& curves) {
  Curve value{metric, style, {}, true};
  Curve below{"", std::string(style) + " old", {}};
  Curve above = below;
  for (const auto& [step, record] : task.records) {
    for (const run::TaskFigure& figure : record.figures) {
      if (figure.name != metric) continue;
      const auto x = static_cast<double>(step);
      value.points.push_back({x, figure.value});
      if (!std::isfinite(figure.error)) continue;
      below.points.push_back({x, figure.value - figure.error});
      above.points.push_back({x, figure.value + figure.error});
    }
  }
  const bool has_errors = !below.points.empty();
  curves.push_back(std::move(value));
  if (!has_errors) return;
  curves.push_back(std::move(below));
  curves.push_back(std::move(above));
}

}  // namespace

std::vector<TaskCourse> task_courses(const RunFiles& run) {
  std::map<std::string, TaskCourse> tasks;
  for (const ValidationRow& row : run.records().validations()) {
    if (!row.counts || !row.of_task()) continue;
    TaskCourse& task = tasks[row.name];
    task.name = plain_text(row.name, kLongestTaskName);
    run::ValidationRecord record = row;
    for (run::TaskFigure& figure : record.figures) {
      figure.name = plain_text(figure.name, kLongestTaskName);
    }
    task.records[row.step] = std::move(record);
  }
  std::vector<TaskCourse> found;
  for (auto& [name, task] : tasks) found.push_back(std::move(task));
  return found;
}

std::vector<Point> points_of(const TaskCourse& task) {
  std::vector<Point> points;
  for (const auto& [step, record] : task.records) {
    points.push_back({static_cast<double>(step), record.figures.front().value});
  }
  return points;
}

std::string task_cards(const RunFiles& run, const std::vector<PlotMark>& marks) {
  std::string out;
  size_t drawn = 0;
  for (const TaskCourse& task : task_courses(run)) {
    if (drawn++ == kMostTaskCards) break;
    const run::ValidationRecord& newest = task.records.rbegin()->second;
    std::vector<Curve> curves;
    for (size_t i = 0; i < newest.figures.size() && i < kMetricStyles.size(); ++i) {
      add_curves(task, newest.figures[i].name, kMetricStyles[i], curves);
    }
    const std::string words =
        fmt::format("{}: {} at step {}, of {}", task.name, run::describe(newest.figures),
                    grouped(newest.step), counted(newest.questions, "question"));
    out +=
        plot_card({"Task " + task.name}, curves, marks, "<p>" + escape(words) + "</p>");
  }
  return out;
}

Json to_json(const std::vector<TaskCourse>& tasks) {
  Json json = Json::array();
  for (const TaskCourse& task : tasks) {
    const run::ValidationRecord& newest = task.records.rbegin()->second;
    json.push_back({{"name", task.name},
                    {"step", newest.step},
                    {"questions", newest.questions},
                    {"metrics", run::to_json(newest.figures)}});
  }
  return json;
}

}  // namespace longhaul::monitor
