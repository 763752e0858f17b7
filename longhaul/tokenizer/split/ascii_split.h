#pragma once

#include <cstddef>
#include <cstdint>

#include "longhaul/tokenizer/split/split.h"
#include "longhaul/tokenizer/unicode/ascii_classes.h"

namespace longhaul::tokenizer {

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
