#pragma once

#include <map>
#include <string>
#include <vector>

#include "longhaul/config/value.h"

namespace longhaul::translate {

/// A run file in the making: a value and a comment per key.
class Draft {
 public:
  struct Line {
    config::Value value;
    std::string comment;
    bool to_fill = false;  ///< the value is a text that says what belongs there
  };

  /// `hidden` may hold settings that are not seen here ("${ARGS[@]}"), so that no default
  /// of the other system is certain; empty: everything is seen.
  explicit Draft(std::string hidden = "") : hidden_(std::move(hidden)) {}

  /// Gives a key ("optimizer.lr") its value; the comment says where the value is from.
  /// The last call counts.
  void put(const std::string& key, config::Value value, const std::string& comment);
  /// Puts a default of the other system where the key has no value yet, unless longhaul's
  /// own default is the same. Asks for the value where something hidden may hold it.
  void put_default(const std::string& key, config::Value value,
                   const std::string& comment = "their default");
  /// Puts, for a value that cannot be known, a text that says what belongs there and that
  /// a start refuses. Does nothing where the key has a value.
  void fill(const std::string& key, const std::string& what);
  /// Puts a field of config.json into model.override.
  void override_field(const std::string& field, config::Value value,
                      const std::string& comment);

  /// Asks for the key whether it has a value or not.
  void demand(const std::string& key, const std::string& what);
  const std::string& hidden() const { return hidden_; }

  bool has(const std::string& key) const { return lines_.contains(key); }
  const std::map<std::string, Line>& lines() const { return lines_; }
  /// A whole number that was put, or `otherwise`.
  int64_t whole(const std::string& key, int64_t otherwise) const;

  /// Notes a setting of the other system that is not carried over: "--foo 1: why".
  void leave(const std::string& line) { left_.push_back(line); }
  const std::vector<std::string>& left() const { return left_; }

  /// The sections as TOML, in the order of the reference.
  std::string sections() const;
  /// Provisional values for what is to be filled, as `--set` takes them.
  std::vector<std::string> provisional() const;

 private:
  std::string hidden_;
  std::map<std::string, Line> lines_;
  std::vector<std::string> left_;
};

/// The text as one line: control characters are written out, so that nothing ends a
/// comment, and a long text is cut.
std::string one_line(std::string_view text);

/// A text as a value.
config::Value text_value(std::string text);

/// The value of data.train for random tokens.
config::Value synthetic_source();

/// The value of data.train for these paths: `[{ path = "..." }]`.
config::Value sources(const std::vector<std::string>& paths);

}  // namespace longhaul::translate
