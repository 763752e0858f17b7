#include "longhaul/translate/draft.h"

#include <algorithm>

#include "longhaul/base/text.h"
#include "longhaul/config/fields.h"
#include "longhaul/system/terminal.h"

namespace longhaul::translate {
namespace {

using config::Array;
using config::Table;
using config::Value;

constexpr size_t kCommentColumn = 32;
constexpr size_t kMostText = 300;

/// Returns longhaul's default of a key as TOML; empty if there is none.
std::string our_default(const std::string& key) {
  RunConfig defaults;
  for (const config::SectionFields& section : config::sections_of(defaults)) {
    for (const config::Field& field : section.fields) {
      if (fmt::format("{}.{}", section.name, field.key) != key || field.required)
        continue;
      const auto value = field.get();
      return value ? config::print_value(*value) : "";
    }
  }
  return "";
}

std::string provisional_value(const std::string& key, const std::string& type,
                              const Draft& draft, bool second) {
  if (key == "data.train") return "[{ path = \"x\" }]";
  if (key == "data.validation") return "[{ name = \"x\", path = \"x\" }]";
  if (key == "batch.global_size" || key == "batch.micro_size") {
    const int64_t micro = std::max<int64_t>(draft.whole("batch.micro_size", 1), 1);
    const int64_t sequences = key == "batch.global_size" ? micro : 1;
    return std::to_string(second && sequences < (1 << 20) ? 2 * sequences : sequences);
  }
  if (key == "data.seq_len") return second ? "8192" : "4096";
  if (key == "run.steps" || key == "schedule.horizon") {
    return second ? "2000000" : "1000000";
  }
  if (key == "schedule.min_lr") return second ? "1e-30" : "0.0";

  const size_t quote = type.find('"');
  if (quote != std::string::npos) {
    // The first or the last name of an enumeration.
    const size_t end = second ? type.rfind('"') : type.find('"', quote + 1);
    const size_t begin = second ? type.rfind('"', end - 1) : quote;
    return type.substr(begin, end + 1 - begin);
  }
  if (type == "integer") return second ? "2" : "1";
  if (type == "number") return second ? "1e-9" : "0.001";
  if (type == "boolean") return second ? "true" : "false";
  if (type == "two numbers") return second ? "[0.8, 0.9]" : "[0.9, 0.95]";
  return second ? "\"./y\"" : "\"./x\"";
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string out = system::printable(text);
  std::ranges::replace(out, '\t', ' ');
  if (out.size() > kMostText) {
    size_t end = kMostText;
    while (end > 0 && (static_cast<unsigned char>(out[end]) & 0xC0U) == 0x80U) --end;
    out = out.substr(0, end) + "...";
  }
  return out;
}

Value synthetic_source() {
  return {Array{{Table{{"synthetic", "", {int64_t{1'000'000}, ""}}}, ""}}, ""};
}

Value sources(const std::vector<std::string>& paths) {
  Array items;
  for (const std::string& path : paths) {
    items.push_back({Table{{"path", "", {path, ""}}}, ""});
  }
  return {std::move(items), ""};
}

void Draft::put(const std::string& key, Plain value, const std::string& comment) {
  lines_[key] = {std::move(value), comment, false};
}

void Draft::put_default(const std::string& key, Plain value, const std::string& comment) {
  if (has(key)) return;
  if (!hidden_.empty()) {
    return fill(key, "{} may say it; {}: {}", hidden_, comment,
                config::print_value(value));
  }
  // 1 and 1.0 are the same number.
  const std::string ours = our_default(key);
  const std::string theirs = config::print_value(value);
  if (theirs == ours || theirs + ".0" == ours) return;
  put(key, std::move(value), comment);
}

void Draft::fill(const std::string& key, const std::string& what) {
  if (has(key) && !lines_[key].to_fill) return;
  const std::string text = one_line("FILL IN: " + what);
  Value value{text, ""};
  if (key == "data.train") value = sources({text});
  if (key == "data.validation") {
    value = {Array{{Table{{"name", "", {std::string("held-out"), ""}},
                          {"path", "", {text, ""}}},
                    ""}},
             ""};
  }
  lines_[key] = {std::move(value), "", true};
}

void Draft::annotate(const std::string& flag, const std::string& text) {
  for (auto& [key, line] : lines_) {
    const size_t place = line.comment.find(flag);
    const bool there = line.comment.find("; " + text) != std::string::npos;
    if (place == std::string::npos || there) continue;
    const size_t end = place + flag.size();
    const bool longer =
        end < line.comment.size() &&
        (is_word_character(line.comment[end]) || line.comment[end] == '-');
    if (!longer) line.comment += "; " + text;
  }
}

void Draft::demand(const std::string& key, const std::string& what) {
  lines_.erase(key);
  fill(key, what);
}

void Draft::override_field(const std::string& field, Plain value,
                           const std::string& comment) {
  const std::string key = "model.override";
  Line& line = lines_[key];
  if (!std::holds_alternative<Table>(line.value.data)) line.value.data = Table{};
  auto& table = std::get<Table>(line.value.data);
  if (config::Entry* const entry = config::find(table, field)) {
    entry->value = std::move(value);
    return;
  }
  table.push_back({field, "", std::move(value)});
  line.comment += (line.comment.empty() ? "" : ", ") + comment;
}

int64_t Draft::whole(const std::string& key, int64_t otherwise) const {
  const auto found = lines_.find(key);
  if (found == lines_.end()) return otherwise;
  const int64_t* const number = std::get_if<int64_t>(&found->second.value.data);
  return number == nullptr ? otherwise : *number;
}

std::string Draft::sections() const {
  std::string out;
  RunConfig defaults;
  for (const config::SectionFields& section : config::sections_of(defaults)) {
    std::string lines;
    for (const config::Field& field : section.fields) {
      const auto found = lines_.find(section.name + "." + field.key);
      if (found == lines_.end()) continue;
      std::string text =
          fmt::format("{} = {}", field.key, config::print_value(found->second.value));
      if (!found->second.comment.empty()) {
        text.resize(std::max(text.size() + 2, kCommentColumn), ' ');
        text += "# " + one_line(found->second.comment);
      }
      lines += text + "\n";
    }
    if (!lines.empty()) out += fmt::format("\n[{}]\n{}", section.name, lines);
  }
  return out;
}

std::map<std::string, std::string> Draft::provisional(bool second) const {
  std::map<std::string, std::string> values;
  RunConfig defaults;
  for (const config::SectionFields& section : config::sections_of(defaults)) {
    for (const config::Field& field : section.fields) {
      const std::string key = section.name + "." + field.key;
      const auto found = lines_.find(key);
      if (found == lines_.end() || !found->second.to_fill) continue;
      // The default of an enumeration or a mixed type is a valid value.
      const auto value = field.get();
      const bool mixed = field.type.find('"') != std::string::npos;
      values[key] = mixed && value && !second
                        ? config::print_value(*value)
                        : provisional_value(key, field.type, *this, second);
    }
  }
  return values;
}

}  // namespace longhaul::translate
