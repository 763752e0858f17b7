#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace longhaul::apps {

/// How a text is drawn on a terminal; styles add up.
enum Style : unsigned { kPlain = 0, kBold = 1, kUnderlined = 2, kCode = 4, kFaint = 8 };

/// A text of one style. It holds no control character but '\n', which ends a line.
struct Piece {
  std::string text;
  unsigned style = kPlain;
};
using Pieces = std::vector<Piece>;

/// A line as it is written, and how many columns it takes.
struct DrawnLine {
  std::string text;
  size_t columns = 0;
};

/// Returns the text between the terminal's codes for its style; without `colour` the text
/// alone.
std::string drawn(const Piece& piece, bool colour);

/// Returns the pieces as lines of at most so many columns, broken at spaces, and inside a
/// word only if the word alone is wider. There is at least one line.
std::vector<DrawnLine> wrapped(const Pieces& pieces, size_t columns, bool colour);

/// Returns how many columns the longest line takes when nothing is wrapped.
size_t natural_columns(const Pieces& pieces);
/// Returns how many columns the longest word takes.
size_t longest_word(const Pieces& pieces);

}  // namespace longhaul::apps
