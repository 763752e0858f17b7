#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "longhaul/tokenizer/unicode/ascii_classes.h"
#include "longhaul/tokenizer/unicode/unicode.h"

namespace longhaul::tokenizer {

/// The known split patterns. Each is known by the exact text of its regular expression.
enum class SplitPattern {
  None,    ///< the text is one piece
  Gpt2,    ///< also ByteLevel with use_regex
  Llama3,  ///< digits by three; also cl100k
  Qwen2,   ///< digits one by one
  O200k,   ///< words by case; also GPT-4o and Llama-4
};

std::string_view split_name(SplitPattern pattern);
/// Returns the pattern with the regular expression `regex`, in any published spelling.
std::optional<SplitPattern> split_from_regex(std::string_view regex);
/// Returns the spelling for new files, which is empty for None.
std::string_view split_regex(SplitPattern pattern);
/// Returns the names of all patterns for messages.
std::string known_splits();

/// Returns how many letters of a contraction ('s 't 're 've 'm 'll 'd) stand behind an
/// apostrophe; 0 if there is none. `first` and `second` are the bytes behind the
/// apostrophe. `any_case` accepts capitals, too.
constexpr size_t contraction_letters(char first, char second, bool any_case) {
  const auto lower = [&](char c) {
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  first = lower(first);
  second = lower(second);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 1;
  const char needed = first == 'l' ? 'l' : 'e';
  const bool two = first == 'r' || first == 'v' || first == 'l';
  return two && second == needed ? 2 : 0;
}

/// Returns the end of the piece that starts at `pos` < text.size(): one match of the
/// pattern in valid UTF-8. The pieces of a text cover the text without gaps.
size_t next_piece_end(SplitPattern pattern, const CharClasses& classes,
                      std::string_view text, size_t pos);

/// The bytes of a window of text.
inline constexpr size_t kAsciiWindow = 64;

/// Returns where pieces begin in a window of text that begins with a piece: a bit per
/// byte, the lowest always set. The text between two neighbouring set bits is certainly a
/// piece of the pattern, whatever stands behind the window. The text from the highest set
/// bit on may continue. `classes` are those of the kAsciiWindow bytes at `text`, of which
/// the first `count` belong to the text. Must not be called for SplitPattern::None.
///
/// Tests compare the result with next_piece_end and with Hugging Face's engine.
uint64_t ascii_piece_starts(SplitPattern pattern, const AsciiClasses& classes,
                            const char* text, size_t count);

}  // namespace longhaul::tokenizer
