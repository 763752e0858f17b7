#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/config/value.h"

namespace longhaul::translate {

/// A value as rules write it: a truth value, an int64_t, a double, a text or a list, or
/// any other value.
struct Plain : config::Value {
  Plain(config::Value value) : config::Value(std::move(value)) {}
  Plain(const char* text) : config::Value{std::string(text), ""} {}
  template <class T>
  Plain(T value) : config::Value{std::move(value), ""} {}
};

/// A run file that is being made: a value and a comment per key.
class Draft {
 public:
  struct Line {
    config::Value value;
    std::string comment;
    bool to_fill = false;  ///< the value is a text that tells the user what to put there
  };

  /// `hidden` are words that may stand for settings ("${ARGS[@]}"), so that no default of
  /// the other system is certain. It is empty if there are no such words.
  explicit Draft(std::string hidden = "") : hidden_(std::move(hidden)) {}

  /// Gives a key ("optimizer.lr") its value. The comment says where the value comes from.
  /// The last call for a key counts.
  void put(const std::string& key, Plain value, const std::string& comment);
  /// Puts a default of the other system if the key has no value yet and longhaul's own
  /// default differs. Asks the user for the value if the hidden words may give it.
  void put_default(const std::string& key, Plain value,
                   const std::string& comment = "their default");
  /// Puts, for an unknown value, a text that says what belongs there and that a start
  /// refuses. A later text replaces an earlier one. Does nothing if the key has a real
  /// value. With more arguments the text is formatted as by fmt::format.
  void fill(const std::string& key, const std::string& what);
  template <class First, class... Rest>
  void fill(const std::string& key, fmt::format_string<First, Rest...> what,
            First&& first, Rest&&... rest) {
    fill(key, fmt::format(what, std::forward<First>(first), std::forward<Rest>(rest)...));
  }
  /// Puts a field of config.json into model.override.
  void override_field(const std::string& field, Plain value, const std::string& comment);

  /// Adds a text to the comments that name a flag.
  void annotate(const std::string& flag, const std::string& text);
  /// Asks the user for the value of a key even if the key has a value.
  void demand(const std::string& key, const std::string& what);
  const std::string& hidden() const { return hidden_; }

  bool has(const std::string& key) const { return lines_.contains(key); }
  const std::map<std::string, Line>& lines() const { return lines_; }
  /// Returns the whole number of a key, or `otherwise`.
  int64_t whole(const std::string& key, int64_t otherwise) const;

  /// Notes a setting of the other system that is not carried over: "--foo 1: why". With
  /// more arguments the line is formatted as by fmt::format.
  void leave(const std::string& line) { left_.push_back(line); }
  template <class First, class... Rest>
  void leave(fmt::format_string<First, Rest...> line, First&& first, Rest&&... rest) {
    leave(fmt::format(line, std::forward<First>(first), std::forward<Rest>(rest)...));
  }
  const std::vector<std::string>& left() const { return left_; }

  /// Returns the sections as TOML, in the order of the reference.
  std::string sections() const;
  /// Returns provisional values for the keys to fill, as `--set` takes them; the second
  /// choice has other numbers.
  std::map<std::string, std::string> provisional(bool second) const;

 private:
  std::string hidden_;
  std::map<std::string, Line> lines_;
  std::vector<std::string> left_;
};

/// Returns the text as one line. Control characters are written out, so that none ends a
/// comment, and a long text is cut.
std::string one_line(std::string_view text);

/// Returns the value of data.train for random tokens.
config::Value synthetic_source();

/// Returns the value of data.train for these paths: `[{ path = "..." }]`.
config::Value sources(const std::vector<std::string>& paths);

}  // namespace longhaul::translate
