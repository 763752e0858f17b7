#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace longhaul::apps {

/// How a text is drawn on a terminal: a sum of these.
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

/// The text between the codes that draw it so; as it is without `colour`.
std::string drawn(const Piece& piece, bool colour);

/// The pieces as lines of at most so many columns, broken at spaces, and inside a word
/// only where the word alone is wider. At least one line.
std::vector<DrawnLine> wrapped(const Pieces& pieces, size_t columns, bool colour);

/// Columns of the longest line when nothing is wrapped, and of the longest word.
size_t natural_columns(const Pieces& pieces);
size_t longest_word(const Pieces& pieces);

}  // namespace longhaul::apps
