#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhaul/translate/shell_conditions.h"
#include "longhaul/translate/shell_words.h"

namespace longhaul::translate {

/// What a variable holds: one word, the elements of an array, or nothing, as it is unset.
/// An unknown value is one word with ShellWord::variable.
struct ShellValue {
  ShellWords words;
  bool set = true;
};

/// The variables of a text while the text is followed from its begin to its end.
class ShellVariables {
 public:
  /// Names that were set since begin_branch, with their values.
  using Changes = std::map<std::string, ShellValue>;
  /// A branch of `if` or `case`: what holds in it, and what it sets.
  using Branch = std::pair<std::string, Changes>;

  ShellVariables(const ShellSettings& settings, const std::string& name)
      : settings_(settings), name_(name) {}

  void set(const std::string& name, ShellValue value);
  /// Adds to a text or to an array, as NAME+=... does.
  void append(const std::string& name, ShellWords words, bool array);
  /// Makes a value unknown.
  void forget(const std::string& name, std::string choices = "");
  void forget_all();
  /// Notes that a value depends on variables that count as unset.
  void depend(const std::string& name, const std::set<std::string>& unset);

  /// Returns a variable's value. ShellValue says how the value shows that the variable is
  /// unset, or that its value is unknown.
  ShellValue get(const std::string& name);
  /// Returns whether a variable is set.
  Truth is_set(const std::string& name);

  /// Begins a branch of a condition. Values that are set from here on hold in this branch
  /// alone: end_branch() returns them, and gives the variables their former values back.
  void begin_branch() { before_.emplace_back(); }
  Changes end_branch();
  /// Sets the variables that several branches set, of which a shell runs one. If the
  /// branches differ in a variable, its value is unknown, and its choices name the values
  /// of the branches.
  void merge(const std::vector<Branch>& branches);

  /// Counts bytes that are copied. Throws InputError above 64 MiB.
  void spend(size_t bytes);
  /// Returns a number for a new unknown value.
  uint64_t new_value() { return ++last_value_; }

 private:
  ShellValue joined(const std::string& name,
                    const std::vector<std::pair<std::string, ShellValue>>& values);

  const ShellSettings& settings_;
  const std::string& name_;
  std::map<std::string, ShellValue, std::less<>> values_;
  /// For each branch that is open: the values before it.
  std::vector<std::map<std::string, std::optional<ShellValue>>> before_;
  bool all_forgotten_ = false;
  uint64_t last_value_ = 0;
  size_t spent_ = 0;
};

/// Returns a word that names an unknown value: "$STEPS".
ShellWord unknown_word(const std::string& name, std::string choices = "");

/// Adds variables that count as unset, up to the number that a message may name.
void add_unset(std::set<std::string>& names, const std::set<std::string>& more);

/// Adds the parts of a word to another one that stands in front of it.
void add_to_word(ShellWord& word, const ShellWord& more);

/// Returns the length of the variable's name at the front of the text, or 0.
size_t shell_name_size(std::string_view text);

/// Returns the parts of a text between blanks. "$(a b)" and "${a b}" are one part each.
ShellWords shell_fields(const ShellWord& word);

}  // namespace longhaul::translate
