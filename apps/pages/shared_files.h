#pragma once

#include <string>

#include "longhaul/base/file.h"

namespace longhaul::apps {

/// Returns the directory of files that come with the program (`name` is "recipes",
/// "docs" or "hardware"): share/longhaul/NAME beside an installed program, else NAME in
/// the source tree that the program was built in. Throws InputError of `area` where
/// neither is there.
fs::path shared_files(const std::string& name, const std::string& area);

/// Returns the model directory that a run file's text takes from those that come with the
/// program, relative to recipes/: "models/llama2-7b"; empty where it takes none.
std::string own_model(const std::string& text);
/// Returns the text with another path for its own model.
std::string with_own_model(const std::string& text, const std::string& model,
                           const fs::path& path);
/// Returns the text with the program's own directory for an own model that is not in the
/// current directory. Throws InputError of `area` where the program has no recipes.
std::string with_own_model_here(const std::string& text, const std::string& area);

}  // namespace longhaul::apps
