#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace longhaul::tokenizer {

/// The bytes of standard base64 with padding; nothing when it is not that.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace longhaul::tokenizer
