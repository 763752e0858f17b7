#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace longhaul {

/// Removes the number at the front of `text` and returns it. Returns nothing and leaves
/// `text` as it is if no number stands there or the number does not fit.
template <typename Number>
std::optional<Number> take_number(std::string_view& text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return number;
}

/// Returns all of `text` as a number, or nothing if it is no number or does not fit.
template <typename Number>
std::optional<Number> whole_number(std::string_view text) {
  const auto number = take_number<Number>(text);
  return text.empty() ? number : std::nullopt;
}

/// Returns the product, or nothing if 64 bits do not hold it.
inline std::optional<int64_t> checked_product(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

}  // namespace longhaul
