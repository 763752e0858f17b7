#pragma once

#include <map>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/monitor/plot.h"
#include "longhaul/monitor/run_files.h"

namespace longhaul::monitor {

/// What a run has recorded of a task.
struct TaskCourse {
  std::string name;  ///< plain text
  /// By step; a step that was done again has its last record.
  std::map<int64_t, run::ValidationRecord> records;
};

/// Returns the tasks of a run in the order of names.
std::vector<TaskCourse> task_courses(const RunFiles& run);

/// Returns the values of the first metric of a task, by step.
std::vector<Point> points_of(const TaskCourse& task);

/// Returns a card for each task: its metrics by step, each between dashed curves that are
/// one standard error away, and the newest figures in words.
std::string task_cards(const RunFiles& run, const std::vector<PlotMark>& marks);

/// Returns the newest figures of each task.
Json to_json(const std::vector<TaskCourse>& tasks);

}  // namespace longhaul::monitor
