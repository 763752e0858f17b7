#include "longhaul/translate/yaml_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include <yaml.h>

#include "longhaul/base/error.h"

namespace longhaul::translate {
namespace {

constexpr size_t kMostDepth = 16;
constexpr size_t kMostEntries = 10'000;

struct EventDeleter {
  void operator()(yaml_event_t* event) const {
    yaml_event_delete(event);
    delete event;
  }
};
using Event = std::unique_ptr<yaml_event_t, EventDeleter>;

/// Returns whether a scalar is null in YAML 1.1 as PyYAML reads it, which these systems
/// use.
bool is_null(const yaml_event_t& event, const std::string& text) {
  return event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
         (text.empty() || text == "~" || text == "null" || text == "Null" ||
          text == "NULL");
}

/// Reads YAML events and builds only the list of settings.
class YamlReader {
 public:
  YamlReader(std::string_view text, const std::string& name) : name_(name) {
    if (yaml_parser_initialize(&parser_) == 0) {
      throw InputError("flags", name + ": no memory for reading YAML");
    }
    yaml_parser_set_input_string(
        &parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  ~YamlReader() { yaml_parser_delete(&parser_); }
  YamlReader(const YamlReader&) = delete;
  YamlReader& operator=(const YamlReader&) = delete;

  std::vector<Said> read() {
    Event event = next();  // the stream's start
    event = next();
    if (event->type == YAML_STREAM_END_EVENT) {
      throw InputError("flags", name_ + ": holds no YAML document; give a training file");
    }
    event = next();
    if (event->type != YAML_MAPPING_START_EVENT) {
      fail(*event, "expected keys with values (key: value), as a training file has");
    }
    mapping("", 1);
    next();
    event = next();
    if (event->type != YAML_STREAM_END_EVENT) {
      fail(*event, "a second document begins here; give one training file");
    }
    return std::move(said_);
  }

 private:
  std::string place(const yaml_mark_t& mark) const {
    return fmt::format("{}:{}:{}", name_, mark.line + 1, mark.column + 1);
  }

  template <class... Args>
  [[noreturn]] void fail(const yaml_event_t& event, fmt::format_string<Args...> what,
                         Args&&... args) const {
    fail_input("flags", "{}: {}", place(event.start_mark),
               fmt::format(what, std::forward<Args>(args)...));
  }

  Event next() {
    Event event(new yaml_event_t{});
    if (yaml_parser_parse(&parser_, event.get()) == 0) {
      const char* const problem =
          parser_.problem != nullptr ? parser_.problem : "cannot be read";
      fail_input("flags", "{}: not valid YAML: {}", place(parser_.problem_mark), problem);
    }
    if (event->type == YAML_ALIAS_EVENT) {
      fail(*event,
           "an alias (*name) repeats another part of the file; write the part out");
    }
    return event;
  }

  static std::string scalar_of(const yaml_event_t& event) {
    return {reinterpret_cast<const char*>(event.data.scalar.value),
            event.data.scalar.length};
  }

  void add(Said said, const yaml_event_t& event) {
    if (said_.size() >= kMostEntries) {
      fail(event, "more than {} values; a training file has fewer", kMostEntries);
    }
    said.shown = said.name;
    said.where = place(event.start_mark);
    said_.push_back(std::move(said));
  }

  void mapping(const std::string& prefix, size_t depth) {
    std::vector<std::string> seen;
    while (true) {
      const Event key = next();
      if (key->type == YAML_MAPPING_END_EVENT) return;
      if (key->type != YAML_SCALAR_EVENT) fail(*key, "a key is a word here, not a list");
      const std::string word = scalar_of(*key);
      if (std::ranges::find(seen, word) != seen.end()) {
        fail(*key, "the key {} stands twice; keep one", word);
      }
      seen.push_back(word);
      if (seen.size() > kMostEntries) fail(*key, "too many keys for a training file");
      const Event value = next();
      node(prefix.empty() ? word : fmt::format("{}.{}", prefix, word), *value, depth);
    }
  }

  void node(const std::string& name, const yaml_event_t& event, size_t depth) {
    if (depth > kMostDepth) fail(event, "nested deeper than {} levels", kMostDepth);
    if (event.type == YAML_SCALAR_EVENT) {
      const std::string text = scalar_of(event);
      if (is_null(event, text)) return add({.name = name, .null = true}, event);
      return add({.name = name, .values = {text}}, event);
    }
    if (event.type == YAML_MAPPING_START_EVENT) return mapping(name, depth + 1);
    while (true) {
      const Event item = next();
      if (item->type == YAML_SEQUENCE_END_EVENT) return;
      node(name, *item, depth + 1);
    }
  }

  std::string name_;
  yaml_parser_t parser_{};
  std::vector<Said> said_;
};

std::string scalar_text(const config::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value.data)) return *text;
  return config::print_value(value);
}

void add_toml(const std::string& name, const config::Value& value,
              std::vector<Said>& said) {
  if (const auto* table = std::get_if<config::Table>(&value.data)) {
    for (const config::Entry& entry : *table)
      add_toml(name + "." + entry.key, entry.value, said);
    return;
  }
  Said one{.name = name, .shown = name, .where = value.where};
  if (const auto* items = std::get_if<config::Array>(&value.data)) {
    for (const config::Value& item : *items) one.values.push_back(scalar_text(item));
    one.null = items->empty();
  } else {
    one.values.push_back(scalar_text(value));
  }
  said.push_back(std::move(one));
}

}  // namespace

std::vector<Said> read_yaml(std::string_view text, const std::string& name) {
  return YamlReader(text, name).read();
}

std::vector<Said> said_of(const config::Table& table) {
  std::vector<Said> said;
  for (const config::Entry& entry : table) add_toml(entry.key, entry.value, said);
  return said;
}

}  // namespace longhaul::translate
