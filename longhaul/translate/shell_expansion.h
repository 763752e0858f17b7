#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longhaul/translate/shell_variables.h"
#include "longhaul/translate/shell_words.h"

namespace longhaul::translate {

/// Returns the index behind "$NAME", "${...}", "$(...)" or "`...`" at `from`, or npos if
/// the end is missing.
size_t shell_piece_end(std::string_view text, size_t from);

/// Replaces variables in words, by the values of a ShellVariables.
class ShellExpansion {
 public:
  ShellExpansion(ShellVariables& variables, const ShellSettings& settings)
      : variables_(variables), settings_(settings) {}

  /// Returns the words that a piece "$NAME", "${NAME:-x}", "$((1 + 2))"... stands for.
  /// `whole`: blanks in a value do not split it.
  ShellWords piece(std::string_view piece, bool whole);
  /// Returns a text without its quotes and with its variables replaced.
  ShellWord text(std::string_view text);
  /// Returns the value of an arithmetic expression.
  ShellWord arithmetic(std::string_view text, std::string_view written);

  /// Sets the arguments $1, $2 and so on: those of a function that is called, or those
  /// that `set --` gives the script, whose own arguments are not known.
  void push_arguments(ShellWords words) { arguments_.push_back(std::move(words)); }
  void pop_arguments() { arguments_.pop_back(); }
  void shift_arguments();

 private:
  ShellWords parameter(std::string_view body, std::string_view piece, bool whole);
  ShellWords with_form(const std::string& name, const ShellValue& value,
                       std::string_view form, std::string_view piece, bool whole);
  ShellWords otherwise(const std::string& name, const ShellValue& value,
                       std::string_view form, std::string_view piece, bool whole);
  ShellValue value_of(const std::string& name);

  ShellVariables& variables_;
  const ShellSettings& settings_;
  std::vector<ShellWords> arguments_;
  int depth_ = 0;
};

}  // namespace longhaul::translate
