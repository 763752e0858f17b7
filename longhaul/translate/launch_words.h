#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/dictionary/words.h"

// The words of command lines: scripts, launchers' options, and flags without a value.

namespace longhaul::translate {

/// Returns the system of a script, by its name without folders.
std::optional<dictionary::OtherSystem> system_of_script(std::string_view script);

/// Returns what longhaul has in place of a script that does not train, as a sentence;
/// nothing for any other script.
std::optional<std::string_view> answer_for_script(std::string_view script);

/// Returns the known scripts for messages.
std::vector<std::string> known_scripts();

/// Returns whether a launcher's option takes the next word. The option has no dashes in
/// front, and _ for -.
bool takes_a_value(std::string_view option);

/// Returns whether the program takes a command as its first word: "trl sft".
bool has_command(std::string_view script);

/// Returns whether a word may stand before a command without changing it.
bool is_prefix(std::string_view word);

/// Returns whether a training script's flag never has a value. The flag is written as in
/// dictionary::OtherWord.
bool flag_stands_alone(std::string_view flag);

/// Returns whether a training script's flag takes several words.
bool takes_several_values(std::string_view flag);

}  // namespace longhaul::translate
