#pragma once

#include <cstddef>
#include <cstdint>

#include "longhaul/tokenizer/split/split.h"
#include "longhaul/tokenizer/unicode/ascii_classes.h"

namespace longhaul::tokenizer {

/// How far a window of text reaches.
inline constexpr size_t kAsciiWindow = 64;

/// Where pieces begin in a window of text that begins with a piece: a bit per byte, the
/// lowest always set. The text between two set bits that follow each other is a piece of
/// the pattern for certain, whatever stands behind the window; nothing is said of what
/// begins at the highest. `classes` are those of the kAsciiWindow bytes at `text`, of
/// which the first `count` belong to the text. Not for SplitPattern::None.
///
/// What the pieces of the patterns do at each border, worked out for all bytes at once,
/// is proved against next_piece_end by split_test and against Hugging Face's engine.
uint64_t ascii_piece_starts(SplitPattern pattern, const AsciiClasses& classes,
                            const char* text, size_t count);

}  // namespace longhaul::tokenizer
