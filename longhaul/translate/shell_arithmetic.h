#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace longhaul::translate {

/// Returns the number of a variable, or nothing if the number is not known.
using ShellNumber = std::function<std::optional<int64_t>(const std::string& name)>;

/// Returns the value of the text between "$((" and "))", whose variables are known by
/// `number`. Returns nothing for an unknown operand, a division by 0, a number of more
/// than 64 bits, and for signs that set variables or move bits.
std::optional<int64_t> shell_arithmetic(std::string_view text, const ShellNumber& number);

}  // namespace longhaul::translate
