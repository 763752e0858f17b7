#include "longhaul/config/special_codecs.h"

#include <algorithm>
#include <cmath>

#include "longhaul/base/clock.h"
#include "longhaul/base/json.h"
#include "longhaul/dictionary/words.h"

namespace longhaul::config {
namespace {

Value from_json(const OrderedJson& json) {
  if (json.is_boolean()) return {json.get<bool>(), ""};
  if (json.is_number_integer()) return {json.get<int64_t>(), ""};
  if (json.is_number()) return {json.get<double>(), ""};
  if (json.is_string()) return {json.get<std::string>(), ""};
  if (json.is_array()) {
    Array items;
    for (const OrderedJson& item : json) items.push_back(from_json(item));
    return {std::move(items), ""};
  }
  Table table;
  for (const auto& [key, item] : json.items())
    table.push_back({key, "", from_json(item)});
  return {std::move(table), ""};
}

/// Refuses numbers that are not finite: JSON, in which the values are stored, has no such
/// numbers, and its null means "not given".
void refuse_what_is_not_finite(const Value& value, const std::string& name) {
  if (const double* number = std::get_if<double>(&value.data)) {
    if (!std::isfinite(*number)) fail_at(value.where, name + " must be a finite number");
  } else if (const Array* items = std::get_if<Array>(&value.data)) {
    for (const Value& item : *items) refuse_what_is_not_finite(item, name);
  } else if (const Table* table = std::get_if<Table>(&value.data)) {
    for (const Entry& entry : *table) {
      refuse_what_is_not_finite(entry.value, name + "." + entry.key);
    }
  }
}

}  // namespace

void Codec<ShardGroup>::read(const Value& value, const std::string& name,
                             ShardGroup& out) {
  if (const int64_t* ranks = std::get_if<int64_t>(&value.data)) {
    if (*ranks < 1) fail_at(value.where, "{} = {}: must be at least 1", name, *ranks);
    out = {ShardGroup::Kind::Ranks, *ranks};
    return;
  }
  const std::string* word = std::get_if<std::string>(&value.data);
  if (!word) fail_type(value, name, "\"world\", \"node\" or a number of ranks");
  if (*word != "world" && *word != "node") fail_choice(value, name, {"world", "node"});
  out = {*word == "world" ? ShardGroup::Kind::World : ShardGroup::Kind::Node, 0};
}

Value Codec<ShardGroup>::write(const ShardGroup& value) {
  if (value.kind == ShardGroup::Kind::Ranks) return {value.ranks, ""};
  return {std::string(value.kind == ShardGroup::Kind::World ? "world" : "node"), ""};
}

void Codec<ResumeFrom>::read(const Value& value, const std::string& name,
                             ResumeFrom& out) {
  if (const int64_t* step = std::get_if<int64_t>(&value.data)) {
    if (*step < 0) fail_at(value.where, "{} = {}: a step is at least 0", name, *step);
    out = {ResumeFrom::Kind::Step, *step, {}};
    return;
  }
  const std::string* word = std::get_if<std::string>(&value.data);
  if (!word || word->empty()) {
    fail_type(value, name, "\"latest\", \"never\", a step number or a path");
  }
  if (*word == "latest" || *word == "never") {
    out.kind = *word == "latest" ? ResumeFrom::Kind::Latest : ResumeFrom::Kind::Never;
    return;
  }
  // A path must have a slash, so that a misspelt word does not pass as one.
  if (word->find('/') == std::string::npos) {
    const std::string hint = dictionary::other_value_hint(name, *word);
    fail_at(value.where,
            "{}: \"{}\" is not \"latest\", \"never\", a step number or a path{}", name,
            *word,
            hint.empty() ? fmt::format("; write a path with a slash, as \"./{}\"", *word)
                         : hint);
  }
  check_expanded(value, name, *word);
  out = {ResumeFrom::Kind::Path, 0, *word};
}

Value Codec<ResumeFrom>::write(const ResumeFrom& value) {
  if (value.kind == ResumeFrom::Kind::Step) return {value.step, ""};
  if (value.kind == ResumeFrom::Kind::Path) return {value.path.string(), ""};
  return {std::string(value.kind == ResumeFrom::Kind::Latest ? "latest" : "never"), ""};
}

void Codec<DataPaths>::read(const Value& value, const std::string& name, DataPaths& out) {
  out.entries.clear();
  if (std::holds_alternative<Array>(value.data)) {
    Codec<std::vector<fs::path>>::read(value, name, out.entries);
    if (out.empty()) fail_at(value.where, name + " is an empty list; name a path");
    return;
  }
  Codec<fs::path>::read(value, name, out.entries.emplace_back());
}

Value Codec<DataPaths>::write(const DataPaths& value) {
  if (value.entries.size() == 1) return Codec<fs::path>::write(value.entries[0]);
  return Codec<std::vector<fs::path>>::write(value.entries);
}

void Codec<ModulePatterns>::read(const Value& value, const std::string& name,
                                 ModulePatterns& out) {
  out.entries.clear();
  if (std::holds_alternative<std::string>(value.data)) {
    Codec<std::string>::read(value, name, out.entries.emplace_back());
  } else {
    Codec<std::vector<std::string>>::read(value, name, out.entries);
  }
  if (std::ranges::count(out.entries, "") > 0) {
    fail_at(value.where, name + " holds an empty name");
  }
}

Value Codec<ModulePatterns>::write(const ModulePatterns& value) {
  if (value.entries.size() == 1) return {value.entries[0], ""};
  return Codec<std::vector<std::string>>::write(value.entries);
}

void Codec<UtcTime>::read(const Value& value, const std::string& name, UtcTime& out) {
  const Value::Date* const date = std::get_if<Value::Date>(&value.data);
  const std::string* const text =
      date != nullptr ? &date->text : std::get_if<std::string>(&value.data);
  const auto seconds = text != nullptr ? utc_seconds(*text) : std::nullopt;
  if (!seconds) {
    fail_type(value, name,
              "a date or a date-time in whole seconds, such as 2026-12-24 or "
              "2026-12-24T18:00:00+01:00");
  }
  out.seconds = *seconds;
}

Value Codec<UtcTime>::write(const UtcTime& value) {
  return {utc_text(value.seconds), ""};
}

void Codec<std::vector<ModelOverride>>::read(const Value& value, const std::string& name,
                                             std::vector<ModelOverride>& out) {
  const Table* table = std::get_if<Table>(&value.data);
  if (!table) fail_type(value, name, "a table such as { num_hidden_layers = 4 }");
  refuse_what_is_not_finite(value, name);
  out.clear();
  for (const Entry& entry : *table) out.push_back({entry.key, print_json(entry.value)});
}

Value Codec<std::vector<ModelOverride>>::write(const std::vector<ModelOverride>& value) {
  Table table;
  for (const ModelOverride& item : value) {
    table.push_back(
        {item.field, "", from_json(parse_ordered_json(item.json, "model.override"))});
  }
  return {std::move(table), ""};
}

}  // namespace longhaul::config
