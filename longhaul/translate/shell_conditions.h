#pragma once

#include <functional>
#include <string>

#include "longhaul/translate/shell_words.h"

namespace longhaul::translate {

/// Whether something holds; Unknown if the text of the script does not decide it.
enum class Truth { No, Yes, Unknown };

Truth truth(bool holds);
Truth opposite(Truth truth);

/// Returns whether a variable is set. The function may note the variables that it takes
/// as unset.
using IsSet = std::function<Truth(const std::string& name)>;

/// Returns whether a condition holds. The words are `[ ... ]`, `[[ ... ]]` or `test ...`.
/// A test of a file is Unknown. A test that a shell refuses does not hold.
Truth shell_condition(const ShellWords& words, const IsSet& is_set);

/// Returns whether a word matches a pattern of `case` or `[[ = ]]`.
Truth shell_match(const ShellWord& word, const ShellWord& pattern);

}  // namespace longhaul::translate
