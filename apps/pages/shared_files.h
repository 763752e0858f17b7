#pragma once

#include <string>

#include "longhaul/base/file.h"

namespace longhaul::apps {

/// Returns the directory of files that come with the program (`name` is "recipes",
/// "docs" or "hardware"): share/longhaul/NAME beside an installed program, else NAME in
/// the source tree that the program was built in. Throws InputError of `area` if neither
/// is there.
fs::path shared_files(const std::string& name, const std::string& area);

/// Returns the directory of the model that a run file's text names, relative to recipes/
/// ("models/llama2-7b"). Returns an empty text if that is none of the models that come
/// with the program.
std::string own_model(const std::string& text);
/// Returns the text with `path` in place of `model`, the directory relative to recipes/
/// of a model that comes with the program.
std::string with_own_model(const std::string& text, const std::string& model,
                           const fs::path& path);
/// Returns a run file's text. If it names a model that comes with the program and that is
/// not in the current directory, the text gets the model's path in the program's own
/// directory. Throws InputError of `area` if the program has no recipes.
std::string with_own_model_here(const std::string& text, const std::string& area);

}  // namespace longhaul::apps
