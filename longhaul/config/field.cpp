#include "longhaul/config/field.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "longhaul/base/error.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/config/codec.h"
#include "longhaul/config/count.h"
#include "longhaul/dictionary/words.h"
#include "longhaul/objects/address.h"
#include "longhaul/objects/address_problem.h"

namespace longhaul::config {
namespace {

void check_built(const Field& field, const Value& value, const std::string& name) {
  if (field.built.empty()) return;
  const std::string given = print_value(field.get().value_or(value));
  if (std::ranges::find(field.built, given) != field.built.end()) return;
  fail_at(value.where, "{} = {} is not available yet in this version; available: {}",
          name, given, fmt::join(field.built, ", "));
}

/// Throws ConfigError for a word that the key does not know, naming only the words that
/// this version takes.
void check_choice(const Field& field, const Value& value, const std::string& name) {
  const std::string* given = std::get_if<std::string>(&value.data);
  if (field.built.empty() || given == nullptr) return;
  if (field.type.find(fmt::format("\"{}\"", *given)) != std::string::npos) return;
  std::vector<std::string> words;
  for (const std::string& built : field.built) {
    if (built.starts_with('"')) words.push_back(built.substr(1, built.size() - 2));
  }
  if (words.size() == field.built.size()) fail_choice(value, name, words);
}

/// Throws ConfigError if a number inside a value lies outside of the field's range.
void check_ranges(const Field& field, const Value& value, const std::string& name) {
  if (!field.in_range) return;
  double number = 0.0;
  const bool count = field.type == "integer" || field.type == "array of integer";
  if (count && !std::holds_alternative<Array>(value.data)) {
    number = static_cast<double>(read_whole(value, name));
  } else if (const int64_t* integer = std::get_if<int64_t>(&value.data)) {
    number = static_cast<double>(*integer);
  } else if (const double* real = std::get_if<double>(&value.data)) {
    number = *real;
  } else if (const Array* items = std::get_if<Array>(&value.data)) {
    for (size_t i = 0; i < items->size(); ++i) {
      check_ranges(field, (*items)[i], fmt::format("{}[{}]", name, i));
    }
    return;
  } else {
    return;
  }
  if (!field.in_range(number)) {
    fail_at(value.where, "{} = {}: must be {}", name, print_value(value), field.rule);
  }
}

[[noreturn]] void fail_unknown(const Entry& entry, const Fields& fields,
                               const std::string& prefix,
                               const std::vector<std::string>& other_names) {
  std::vector<std::string> keys;
  for (const Field& field : fields) keys.push_back(field.key);
  std::string message = fmt::format("unknown key {}.{}", prefix, print_key(entry.key));
  // Inside of an inline table, keys of sections are not offered.
  const bool is_section = !other_names.empty();
  const auto meaning =
      is_section
          ? dictionary::meaning_of(dictionary::word_name(entry.key), prefix, other_names)
          : std::nullopt;
  if (meaning) {
    message += dictionary::say_meaning(*meaning);
  } else if (const auto nearest = nearest_name(entry.key, keys)) {
    message += fmt::format("; did you mean {}?", *nearest);
  } else if (const auto meant =
                 is_section ? dictionary::meaning_of_mistyped(
                                  dictionary::word_name(entry.key), prefix, other_names)
                            : std::nullopt) {
    message += dictionary::say_meaning(*meant);
  } else {
    message += fmt::format("; valid here: {}", fmt::join(keys, ", "));
  }
  fail_at(entry.where, message);
}

/// Returns whether a text is one of these words, in upper or lower case.
bool is_one_of(const std::string& text, std::initializer_list<std::string_view> words) {
  const std::string lower = dictionary::word_name(text);
  return std::ranges::find(words, lower) != words.end();
}

/// Returns how TOML writes a value that was given in the form of another language, such
/// as 1 for true. This is the end of a message; an empty text for any other value.
std::string as_toml(const Value& value, const std::string& name,
                    std::string_view expected) {
  const bool boolean = expected == "true or false";
  if (const int64_t* number = std::get_if<int64_t>(&value.data)) {
    if (!boolean || *number < 0 || *number > 1) return "";
    return fmt::format("; write {}", *number == 1);
  }
  const std::string* text = std::get_if<std::string>(&value.data);
  if (text == nullptr) return "";
  if (is_one_of(*text, {"none", "null", "nil", "~"})) {
    return fmt::format("; TOML has no null: leave the key out (--set {}= takes it out)",
                       name);
  }
  if (boolean) {
    if (is_one_of(*text, {"true", "yes", "on", "1", "t", "y"})) return "; write true";
    if (is_one_of(*text, {"false", "no", "off", "0", "f", "n"})) return "; write false";
  }
  const bool number = expected == "a number" || expected == "an integer";
  double parsed = 0.0;
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, parsed);
  if (number && error == std::errc() && stop == end) {
    return fmt::format("; write {} without quotes", *text);
  }
  return "";
}

/// Returns which key or which number expresses a share such as "10%" or 0.1, as the end
/// of a message, or an empty text.
std::string share_hint(const Value& value, const std::string& name) {
  const std::string* text = std::get_if<std::string>(&value.data);
  const double* number = std::get_if<double>(&value.data);
  double percent = 0.0;
  if (text != nullptr) {
    const char* const end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, percent);
    if (error != std::errc() || stop + 1 != end || *stop != '%') return "";
  } else if (number == nullptr || !(*number > 0.0 && *number < 1.0)) {
    return "";
  }
  if (name == "schedule.warmup_steps") {
    return "; schedule.warmup_fraction takes a share, as 0.1";
  }
  return text != nullptr && name.ends_with("_fraction")
             ? fmt::format("; write {}", percent / 100.0)
             : "";
}

/// Returns the unit of a key for which a text such as "30 min" is given, as the end of a
/// message, or an empty text.
std::string duration_hint(const std::string& text, const std::string& name) {
  const size_t unit = text.find_first_not_of("0123456789. ");
  if (unit == 0 || unit == std::string::npos) return "";
  if (!is_one_of(text.substr(unit), {"s", "sec", "seconds", "min", "mins", "minutes", "h",
                                     "hour", "hours"})) {
    return "";
  }
  if (name == "checkpoint.every") {
    return "; it counts steps, and checkpoint.every_minutes counts minutes";
  }
  return name.ends_with("_s") ? "; it is a number of seconds" : "";
}

/// Returns how TOML writes a list of sources, or of validation sets, if the file has
/// another value. This is the end of a message, or an empty text.
std::string list_hint(const Value& value, const std::string& name,
                      std::string_view expected) {
  const bool list = expected.starts_with("an array of {");
  if (!list && !expected.starts_with("a table such as {")) return "";
  if (list && std::holds_alternative<Table>(value.data)) {
    return fmt::format("; a list stands in brackets: [{}]", print_value(value));
  }
  const bool number = std::holds_alternative<double>(value.data);
  if (number && name == "data.validation") {
    return "; longhaul data build --holdout sets documents aside before the run";
  }
  const std::string* text = std::get_if<std::string>(&value.data);
  if (text == nullptr || expected.find("path = path") == std::string_view::npos) {
    return "";
  }
  const bool named = expected.find("name = string") != std::string_view::npos;
  const std::string one = fmt::format(
      "{{ {}path = {} }}", named ? "name = \"val\", " : "", print_value(value));
  return fmt::format("; write {}", list ? "[" + one + "]" : one);
}

/// Returns what the user may have meant by a value of another type than the key's, as the
/// end of a message, or an empty text.
std::string type_hint(const Value& value, const std::string& name,
                      std::string_view expected) {
  const std::string* text = std::get_if<std::string>(&value.data);
  std::string hint =
      dictionary::other_value_hint(name, text ? *text : print_value(value));
  if (hint.empty()) hint = as_toml(value, name, expected);
  if (hint.empty()) hint = share_hint(value, name);
  if (hint.empty() && text != nullptr) hint = duration_hint(*text, name);
  if (hint.empty()) hint = list_hint(value, name, expected);
  return hint;
}

}  // namespace

std::string quoted(const std::vector<std::string>& names, std::string_view between) {
  return fmt::format("\"{}\"", fmt::join(names, fmt::format("\"{}\"", between)));
}

void fail_at(const std::string& where, const std::string& message) {
  throw ConfigError("config", where.empty() ? message : where + ": " + message);
}

void fail_type(const Value& value, const std::string& name, std::string_view expected) {
  std::string found = print_value(value);
  if (found.size() > 60) found = found.substr(0, 57) + "...";
  fail_at(value.where, "{}: expected {}, found {} ({}){}", name, expected, value.kind(),
          found, type_hint(value, name, expected));
}

int64_t read_whole(const Value& value, const std::string& name) {
  if (const int64_t* given = std::get_if<int64_t>(&value.data)) return *given;
  std::string text;
  if (const std::string* word = std::get_if<std::string>(&value.data)) {
    text = *word;
  } else if (const double* number = std::get_if<double>(&value.data);
             number && value.exponent) {
    text = fmt::format("{}", *number);
  }
  const CountText read = read_count(text, is_length(name));
  if (!read.problem.empty()) fail_at(value.where, "{}: {}", name, read.problem);
  if (!read.count) fail_type(value, name, "an integer");
  return *read.count;
}

void check_expanded(const Value& value, const std::string& name,
                    const std::string& path) {
  // The field says whether it takes the address of an object; see refuse_objects().
  if (objects::is_address(path)) {
    const std::string problem = objects::address_problem(path);
    if (!problem.empty()) fail_at(value.where, "{}: {}", name, problem);
    return;
  }
  std::string meant = as_address(path);
  if (meant.empty()) meant = unexpanded(path);
  if (meant.empty()) return;
  fail_at(value.where, "{} = \"{}\": {}", name, objects::without_secrets(path), meant);
}

void fail_choice(const Value& value, const std::string& name,
                 const std::vector<std::string>& choices) {
  const std::string* given = std::get_if<std::string>(&value.data);
  const std::string hint =
      dictionary::other_value_hint(name, given ? *given : print_value(value));
  if (!given) {
    if (hint.empty()) fail_type(value, name, "one of " + quoted(choices, ", "));
    fail_at(value.where, "{}: {} is not one of {}{}", name, print_value(value),
            quoted(choices, ", "), hint);
  }
  std::string message =
      fmt::format("{}: \"{}\" is not one of {}", name, *given, quoted(choices, ", "));
  const auto same = std::ranges::find_if(choices, [&](const std::string& choice) {
    return dictionary::word_name(choice) == dictionary::word_name(*given);
  });
  if (same != choices.end()) {
    message += fmt::format("; did you mean \"{}\"?", *same);
  } else if (!hint.empty()) {
    message += hint;
  } else if (const auto nearest = nearest_name(*given, choices)) {
    message += fmt::format("; did you mean \"{}\"?", *nearest);
  }
  fail_at(value.where, message);
}

Field& Field::must_be_given() {
  required = true;
  return *this;
}

Field& Field::when_absent(std::string text) {
  absent = std::move(text);
  return *this;
}

Field& Field::at_least(double low) {
  rule = fmt::format("at least {}", low);
  in_range = [low](double number) { return number >= low; };
  return *this;
}

Field& Field::above(double low) {
  rule = fmt::format("greater than {}", low);
  in_range = [low](double number) { return number > low; };
  return *this;
}

Field& Field::within(double low, double high) {
  rule = fmt::format("from {} to {}", low, high);
  in_range = [=](double number) { return number >= low && number <= high; };
  return *this;
}

Field& Field::below(double low, double high) {
  rule = fmt::format("at least {} and less than {}", low, high);
  in_range = [=](double number) { return number >= low && number < high; };
  return *this;
}

Field& Field::may_be_address() {
  takes_objects = true;
  return *this;
}

Field& Field::written_unless(std::function<bool()> hidden) {
  get = [hidden = std::move(hidden), write = get] {
    return hidden() ? std::nullopt : write();
  };
  return *this;
}

Field& Field::one_of(std::vector<std::string> texts) {
  type = quoted(texts, " | ");
  set = [set = std::move(set), texts = std::move(texts)](const Value& value,
                                                         const std::string& name) {
    const auto* text = std::get_if<std::string>(&value.data);
    if (text == nullptr || std::ranges::find(texts, *text) == texts.end()) {
      fail_choice(value, name, texts);
    }
    set(value, name);
  };
  return *this;
}

Field& Field::only_built(std::vector<std::string> values) {
  built = std::move(values);
  return *this;
}

namespace {

/// Throws ConfigError for the address of an object if the field takes only paths.
void refuse_objects(const Field& field, const Value& value, const std::string& name) {
  if (field.takes_objects || field.type.find("path") == std::string::npos) return;
  const std::string* text = std::get_if<std::string>(&value.data);
  if (text == nullptr || !objects::is_address(*text)) return;
  check_expanded(value, name, *text);
  const bool writes = name == "run.dir" || name == "checkpoint.dir";
  fail_at(value.where,
          "{} = \"{}\": the address of an object, but this key takes a path of a local "
          "or shared file system{}",
          name, *text,
          writes ? "; checkpoint.mirror copies checkpoints to an address" : "");
}

}  // namespace

void set_fields(const Fields& fields, const Table& table, const std::string& prefix,
                const std::vector<std::string>& other_names) {
  for (const Entry& entry : table) {
    const auto field = std::ranges::find(fields, entry.key, &Field::key);
    if (field == fields.end()) fail_unknown(entry, fields, prefix, other_names);
    const std::string name = prefix + "." + entry.key;
    const std::string* text = std::get_if<std::string>(&entry.value.data);
    if (field->required && text != nullptr && text->empty()) {
      fail_at(entry.value.where, "{} is empty, and required: {}", name, field->meaning);
    }
    refuse_objects(*field, entry.value, name);
    check_choice(*field, entry.value, name);
    field->set(entry.value, name);
    check_ranges(*field, entry.value, name);
    check_built(*field, entry.value, name);
  }
}

Table get_fields(const Fields& fields) {
  Table out;
  for (const Field& field : fields) {
    if (auto value = field.get()) out.push_back({field.key, "", std::move(*value)});
  }
  return out;
}

}  // namespace longhaul::config
