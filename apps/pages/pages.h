#pragma once

#include <string>

#include "longhaul/base/file.h"

namespace longhaul::apps {

/// Returns the Markdown of a page in the directory `docs`, or of one section of it.
/// `wanted` is what people read in messages and links: "data", "data.md", "docs/data.md",
/// "data#tokenizers"; README, CHANGELOG and others lie beside the directory. An empty
/// name and "docs/README.md" stand for the list of pages. Throws InputError with the
/// nearest name for a page or a section that is not there.
std::string read_page(const fs::path& docs, const std::string& wanted);

}  // namespace longhaul::apps
