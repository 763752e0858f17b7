#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/config/other_words.h"

// The words of command lines: scripts, launchers' options, and flags without a value.

namespace longhaul::translate {

/// The system of a script's name, without folders.
std::optional<config::OtherSystem> system_of_script(std::string_view script);

/// What does the work of a script that trains nothing.
std::optional<std::string_view> answer_for_script(std::string_view script);

/// The scripts that are known, as messages name them.
std::vector<std::string> known_scripts();

/// Whether a launcher's option takes the next word; without dashes, _ for -.
bool takes_a_value(std::string_view option);

/// Whether a word stands before a command and does not change it.
bool is_prefix(std::string_view word);

/// Whether a training script's flag never has a value; named as config::OtherWord is.
bool flag_stands_alone(std::string_view flag);

/// Whether a training script's flag takes several words.
bool takes_several_values(std::string_view flag);

}  // namespace longhaul::translate
