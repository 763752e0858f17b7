#pragma once

#include <string>
#include <string_view>

#include "longhaul/translate/source.h"

namespace longhaul::translate {

/// What a command line of another system says: its script, flags, launcher and variables.
/// `name` stands for it in messages. A file that it names (--config-file and the like) is
/// put in `config_file`; its words are to be read before the flags. InputError where no
/// training script is in it.
Source read_command_line(std::string_view text, const std::string& name,
                         std::string& config_file);

}  // namespace longhaul::translate
