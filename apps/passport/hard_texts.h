#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace longhaul::apps {

/// Returns texts on which tokenizers differ: blanks and ends of lines, digits,
/// contractions, scripts, combining marks, joined emoji, and words of special tokens, put
/// together at random. They are valid UTF-8, and the same in every call.
std::vector<std::string> hard_texts(size_t count);

}  // namespace longhaul::apps
