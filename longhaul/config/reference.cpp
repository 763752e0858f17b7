#include "longhaul/config/reference.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/json.h"
#include "longhaul/config/fields.h"

namespace longhaul {
namespace {

using namespace config;

constexpr size_t kWrap = 78;

std::string_view resume_name(ResumeClass resume) {
  constexpr std::string_view kNames[] = {"free", "logged", "match"};
  return kNames[static_cast<size_t>(resume)];
}

std::string default_of(const Field& field) {
  if (field.required) return "required";
  const auto value = field.get();
  return value ? print_value(*value) : fmt::format("({})", field.absent);
}

std::string availability(const Field& field) {
  if (field.built.empty()) return "yes";
  return fmt::format("not available yet, other than {}", fmt::join(field.built, ", "));
}

/// Breaks a paragraph into lines at spaces. Each line begins with `indent` blanks.
std::string wrapped(const std::string& text, size_t indent) {
  std::string out;
  std::string line;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && indent + line.size() + 1 + word.size() > kWrap) {
      out += std::string(indent, ' ') + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    at = end + 1;
  }
  return out + std::string(indent, ' ') + line + "\n";
}

}  // namespace

std::string config_reference_text() {
  RunConfig defaults;
  const std::vector<SectionFields> sections = sections_of(defaults);
  size_t key_width = 0;
  for (const SectionFields& section : sections) {
    for (const Field& field : section.fields) {
      key_width = std::max(key_width, field.key.size());
    }
  }
  std::string out =
      "Every key of a run's TOML file: default, type and rule, and what a resume may "
      "do.\n"
      "A resume may change what is free or logged (the log says so), but not what is "
      "match.\n"
      "--set section.key=value replaces the file's value; --set section.key= removes the "
      "key.\n"
      "A whole number may be written as 16000, 1e6, or \"16k\".\n"
      "Here k is 1,000, M 1,000,000, B 10^9, T 10^12, Ki 1,024 and Mi 1,048,576.\n"
      "The key data.seq_len takes no k and no M, which may mean either.\n";
  for (const SectionFields& section : sections) {
    out += fmt::format("\n[{}]  {}\n", section.name, section.meaning);
    for (const Field& field : section.fields) {
      out += fmt::format("  {:<{}}  {}\n", field.key, key_width, default_of(field));
      const size_t indent = key_width + 4;
      out += wrapped(field.meaning, indent);
      std::string facts = field.type;
      if (!field.rule.empty()) facts += ", " + field.rule;
      facts += fmt::format("; resume: {}", resume_name(field.resume));
      if (!field.built.empty()) facts += "; " + availability(field);
      out += wrapped(facts, indent);
    }
  }
  return out;
}

std::string config_reference_json() {
  RunConfig defaults;
  OrderedJson list = OrderedJson::array();
  for (const SectionFields& section : sections_of(defaults)) {
    for (const Field& field : section.fields) {
      OrderedJson item;
      item["key"] = section.name + "." + field.key;
      item["type"] = field.type;
      item["required"] = field.required;
      const auto value = field.get();
      item["default"] = field.required || !value ? OrderedJson(nullptr)
                                                 : OrderedJson::parse(print_json(*value));
      if (!value) item["when_absent"] = field.absent;
      item["meaning"] = field.meaning;
      item["rule"] = field.rule;
      item["resume"] = resume_name(field.resume);
      item["available"] = availability(field);
      list.push_back(std::move(item));
    }
  }
  return json_text(list, 2) + "\n";
}

}  // namespace longhaul
