#include "longhaul/data/input/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/data/input/parse.h"

namespace longhaul::data {

std::string_view problem_name(RecordProblem problem) {
  // The names are in the order of RecordProblem.
  static constexpr std::array<std::string_view, 17> kNames{"none",
                                                           "empty",
                                                           "invalid UTF-8",
                                                           "invalid JSON",
                                                           "not a JSON object",
                                                           "field missing",
                                                           "field is not text",
                                                           "field stands twice",
                                                           "too long",
                                                           "wrong number of fields",
                                                           "text after a closing quote",
                                                           "token id out of range",
                                                           "bad attention_mask",
                                                           "bad labels",
                                                           "chat",
                                                           "not tokenized",
                                                           "chat of no use"};
  const auto number = static_cast<size_t>(problem);
  return number < kNames.size() ? kNames[number] : "unknown";
}

uint64_t RawRecord::memory_bytes() const {
  return sizeof(RawRecord) + bytes.capacity() + detail.capacity() +
         sizeof(int64_t) *
             (ids.capacity() + labels.capacity() + attention_mask.capacity());
}

void RawRecord::clear() {
  form = Form::WholeFile;
  bytes.clear();
  ids.clear();
  labels.clear();
  attention_mask.clear();
  has_labels = false;
  has_mask = false;
  csv_column = 0;
  csv_columns = 0;
  place = {};
  problem = RecordProblem::None;
  detail.clear();
}

void DroppedRecords::add(RecordProblem problem, Example example) {
  ++counts[problem];
  std::vector<Example>& examples = first[problem];
  if (examples.size() < kExamples) examples.push_back(std::move(example));
}

int64_t DroppedRecords::total() const {
  int64_t sum = 0;
  for (const auto& [problem, count] : counts) sum += count;
  return sum;
}

int64_t DroppedRecords::bad() const {
  const auto empty = counts.find(RecordProblem::Empty);
  return total() - (empty == counts.end() ? 0 : empty->second);
}

std::string DroppedRecords::describe() const {
  std::string text;
  for (const auto& [problem, count] : counts) {
    text += fmt::format("{} {}:", grouped(count), problem_name(problem));
    for (const Example& example : first.at(problem)) {
      text += " " + example.place;
      if (!example.detail.empty()) text += fmt::format(" ({})", example.detail);
    }
    text += static_cast<size_t>(count) > kExamples ? " ...\n" : "\n";
  }
  return text;
}

std::string DroppedRecords::in_one_line() const {
  std::string line;
  for (const char c : describe()) line += c == '\n' ? "; " : std::string(1, c);
  return line;
}

std::string bad_record_json(const std::string& path, bool is_row, int64_t line,
                            int64_t offset, RecordProblem problem,
                            std::string_view detail) {
  Json json = {{"file", path}};
  if (is_row || line > 0) json[is_row ? "row" : "line"] = line;
  if (offset >= 0) json["byte"] = offset;
  json["problem"] = std::string(problem_name(problem));
  if (!detail.empty()) json["detail"] = std::string(detail);
  // A path or an excerpt need not be UTF-8; json_text makes the line UTF-8.
  return json_text(json) + "\n";
}

std::string name_another(std::vector<std::string> names, std::string_view wanted) {
  const std::string usual = "text";
  std::erase_if(names, [](const std::string& name) {
    return name == "labels" || name == "attention_mask";  // beside ids
  });
  if (names.empty()) return "";
  std::optional<std::string> best = nearest_name(wanted, names);
  if (names.size() == 1) best = names.front();
  if (std::ranges::find(names, usual) != names.end()) best = usual;
  if (!best) return "; name one of these fields with --field";
  const bool plain = best->find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                         "_-.") == std::string::npos;
  return fmt::format("; name one of these fields, for example with --field {}",
                     plain ? *best : fmt::format("'{}'", *best));
}

std::string chat_advice(std::string_view field) {
  return fmt::format(
      "records are chats ('{}'); build a store of chats with --chat (longhaul docs "
      "data#chats)",
      field);
}

std::string describe_broken(const std::string& place, RecordProblem problem,
                            const std::string& detail) {
  return fmt::format("{}: {}{}{}", place, problem_name(problem),
                     detail.empty() ? "" : ": ", detail);
}

}  // namespace longhaul::data
