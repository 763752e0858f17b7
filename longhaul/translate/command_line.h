#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "longhaul/translate/flags_source.h"
#include "longhaul/translate/shell_words.h"

namespace longhaul::translate {

/// Reads a command line of another system: its script, flags, launcher and variables.
/// Messages call the command line `name`. If a person names the number of `ranks`, the
/// number of machines that a script asks the scheduler for follows from it. The path of a
/// settings file that the command line names (--config-file and the like) is put into
/// `config_file`; the flags that are returned override the settings of that file. Throws
/// InputError if the text starts no training script that is known.
Source read_command_line(std::string_view text, const std::string& name,
                         const ShellSettings& settings, std::optional<int64_t> ranks,
                         std::string& config_file);

}  // namespace longhaul::translate
