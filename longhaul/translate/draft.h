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

  /// "optimizer.lr" gets the value; the comment says where it is from. The last call
  /// counts.
  void put(const std::string& key, config::Value value, const std::string& comment);
  /// A default of the other system: written where the key has no value yet and the value
  /// differs from what longhaul takes without it, or longhaul takes none.
  void put_default(const std::string& key, config::Value value,
                   const std::string& comment = "their default");
  /// The key's value is not known here: the file says what belongs there, in a form that
  /// a start refuses. Nothing where the key has a value.
  void fill(const std::string& key, const std::string& what);
  /// A field of config.json for model.override.
  void override_field(const std::string& field, config::Value value,
                      const std::string& comment);

  bool has(const std::string& key) const { return lines_.contains(key); }
  const std::map<std::string, Line>& lines() const { return lines_; }
  /// A whole number that was put, or `otherwise`.
  int64_t whole(const std::string& key, int64_t otherwise) const;

  /// A setting of theirs that does not come along: "--foo 1: why".
  void leave(const std::string& line) { left_.push_back(line); }
  const std::vector<std::string>& left() const { return left_; }

  /// The sections as TOML, in the order of the reference.
  std::string sections() const;
  /// Provisional values for what is to be filled, as `--set` takes them.
  std::vector<std::string> provisional() const;

 private:
  std::map<std::string, Line> lines_;
  std::vector<std::string> left_;
};

/// One line of text: control characters written out, so that nothing ends a comment.
std::string one_line(std::string_view text);

/// "[{ path = "..." }]".
config::Value sources(const std::vector<std::string>& paths);

}  // namespace longhaul::translate
