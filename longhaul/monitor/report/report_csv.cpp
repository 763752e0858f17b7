#include "longhaul/monitor/report/report_csv.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <variant>

#include "longhaul/base/clock.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/run/files.h"

namespace longhaul::monitor {
namespace {

struct Row {
  double time = 0.0;
  std::map<std::string, std::string> cells;
};

/// Adds the numbers of an object, and of the objects in it, under their names.
void add_numbers(const Json& object, const std::string& prefix, Row& row) {
  for (const auto& [key, value] : object.items()) {
    const std::string name = prefix + key;
    if (name == run::kStepKey || name == run::kTimeKey) continue;
    if (value.is_object()) {
      add_numbers(value, name + "/", row);
    } else if (value.is_boolean()) {
      row.cells[name] = value.get<bool>() ? "1" : "0";
    } else if (value.is_number() && std::isfinite(value.get<double>())) {
      row.cells[name] = json_text(value);
    }
  }
}

/// Returns all that a line says; what its record keeps, where the line is odd JSON.
Json all_of(std::string_view line, const StepRow& step) {
  try {
    return parse_json(line, run::kMetricsFile);
  } catch (const InputError&) {
    return to_json(step, {});
  }
}

/// Returns the rows of validations and tasks, which are few, by their steps.
std::map<int64_t, Row> validation_rows(const Records& records) {
  std::map<int64_t, Row> rows;
  for (const ValidationRow& one : records.validations()) {
    if (!one.counts) continue;
    Row& row = rows[one.step];
    row.time = std::max(row.time, one.time);
    if (one.of_task()) {
      add_numbers(run::to_json(one.figures), "task/" + one.name + "/", row);
      continue;
    }
    Json numbers = to_json(one);
    for (const char* key : {run::kStepKey, run::kTimeKey}) numbers.erase(key);
    add_numbers(numbers, "validation/" + one.name + "/", row);
  }
  return rows;
}

/// Calls `use` with each row, by ascending step. What a record does not keep, such as the
/// tokens of each source, is read from the line again, so that one row is in memory at a
/// time.
void for_each_row(const RunFiles& run,
                  const std::function<void(int64_t step, const Row&)>& use) {
  const Records& records = run.records();
  std::map<int64_t, Row> waiting = validation_rows(records);
  const auto use_before = [&](int64_t step) {
    while (!waiting.empty() && waiting.begin()->first < step) {
      const auto first = waiting.extract(waiting.begin());
      use(first.key(), first.mapped());
    }
  };
  size_t number = 0;  // steps of lines so far
  LineTail lines(run.dir() / run::kMetricsFile);
  const auto take = [&](std::string_view line) {
    const auto read = run::read_record(line);
    if (number == records.all().size() ||
        !std::holds_alternative<run::StepRecord>(read)) {
      return;
    }
    const StepRow& step = records.all()[number++];
    if (!step.counts) return;
    use_before(step.step);
    Row row;
    if (auto same = waiting.extract(step.step)) row = std::move(same.mapped());
    row.time = std::max(row.time, step.time);
    add_numbers(all_of(line, step), "", row);
    use(step.step, row);
  };
  lines.read(take, [] {});
  use_before(std::numeric_limits<int64_t>::max());
}

/// Returns a cell in quotes, which may then hold commas and quotes.
std::string quoted(const std::string& text) {
  std::string cell = "\"";
  for (const char c : text) {
    if (c == '"') cell += '"';
    cell += c;
  }
  return cell + '"';
}

}  // namespace

std::string report_csv(const RunFiles& run) {
  std::set<std::string> columns;
  for_each_row(run, [&](int64_t /*step*/, const Row& row) {
    for (const auto& [name, cell] : row.cells) columns.insert(name);
  });
  std::string text = "step,timestamp";
  for (const std::string& name : columns) text += "," + quoted(name);
  for_each_row(run, [&](int64_t step, const Row& row) {
    text += "\n" + std::to_string(step) + ",";
    if (row.time > 0.0) text += utc_text(static_cast<int64_t>(row.time));
    for (const std::string& name : columns) {
      const auto cell = row.cells.find(name);
      text += "," + (cell == row.cells.end() ? std::string() : cell->second);
    }
  });
  return text + "\n";
}

}  // namespace longhaul::monitor
