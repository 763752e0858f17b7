#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace longhaul::tokenizer {

/// Decodes standard base64 with padding. Returns nothing if the text is something else.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace longhaul::tokenizer
