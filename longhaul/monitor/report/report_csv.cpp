#include "longhaul/monitor/report/report_csv.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "longhaul/base/clock.h"
#include "longhaul/base/json.h"

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
    if (value.is_object()) {
      add_numbers(value, name + "/", row);
    } else if (value.is_boolean()) {
      row.cells[name] = value.get<bool>() ? "1" : "0";
    } else if (value.is_number() && std::isfinite(value.get<double>())) {
      row.cells[name] = json_text(value);
    }
  }
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
  std::map<int64_t, Row> rows;
  const auto add = [&](const Json& record, double time, const std::string& prefix) {
    Row& row = rows[record.at(run::kStepKey).get<int64_t>()];
    row.time = std::max(row.time, time);
    Json numbers = record;
    for (const char* key : {run::kStepKey, run::kTimeKey}) numbers.erase(key);
    add_numbers(numbers, prefix, row);
  };
  for (const size_t i : run.records().counted()) {
    const StepRow& step = run.records().all()[i];
    add(to_json(step, {}), step.time, "");
  }
  for (const ValidationRow& row : run.records().validations()) {
    if (!row.counts) continue;
    if (row.of_task()) {
      Row& cells = rows[row.step];
      cells.time = std::max(cells.time, row.time);
      add_numbers(run::to_json(row.figures), "task/" + row.name + "/", cells);
    } else {
      add(to_json(row), row.time, "validation/" + row.name + "/");
    }
  }
  std::set<std::string> columns;
  for (const auto& [step, row] : rows) {
    for (const auto& [name, cell] : row.cells) columns.insert(name);
  }
  std::string text = "step,timestamp";
  for (const std::string& name : columns) text += "," + quoted(name);
  for (const auto& [step, row] : rows) {
    text += "\n" + std::to_string(step) + ",";
    if (row.time > 0.0) text += utc_text(static_cast<int64_t>(row.time));
    for (const std::string& name : columns) {
      const auto cell = row.cells.find(name);
      text += "," + (cell == row.cells.end() ? std::string() : cell->second);
    }
  }
  return text + "\n";
}

}  // namespace longhaul::monitor
