#include "apps/pages/styled_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "longhaul/monitor/plain_text.h"

namespace longhaul::apps {
namespace {

using monitor::text_columns;

constexpr size_t kEndless = std::numeric_limits<size_t>::max();

/// Returns how many bytes of the text fit into so many columns; at least one character
/// fits.
size_t fitting_bytes(std::string_view text, size_t columns) {
  size_t end = 0;
  while (end < text.size()) {
    size_t next = end + 1;
    while (next < text.size() && (static_cast<unsigned char>(text[next]) & 0xC0U) == 0x80)
      ++next;
    if (end > 0 && text_columns(text.substr(0, next)) > columns) break;
    end = next;
  }
  return end;
}

/// Lays words into lines.
class Wrapper {
 public:
  Wrapper(size_t columns, bool colour)
      : columns_(std::max<size_t>(columns, 1)), colour_(colour) {}

  void add(const Piece& piece) {
    size_t begin = 0;
    while (begin < piece.text.size()) {
      const size_t end =
          std::min(piece.text.find_first_of(" \n", begin), piece.text.size());
      if (end > begin) {
        word_.push_back({piece.text.substr(begin, end - begin), piece.style});
      }
      if (end < piece.text.size()) {
        end_word();
        if (piece.text[end] == '\n') end_line();
      }
      begin = end + 1;
    }
  }

  std::vector<DrawnLine> finish() {
    end_word();
    if (line_.columns > 0 || lines_.empty()) end_line();
    return std::move(lines_);
  }

 private:
  void end_line() { lines_.push_back(std::exchange(line_, {})); }

  void put(const Piece& part) {
    line_.text += drawn(part, colour_);
    line_.columns += text_columns(part.text);
  }

  void end_word() {
    size_t word_columns = 0;
    for (const Piece& part : word_) word_columns += text_columns(part.text);
    if (word_columns == 0) return;
    if (line_.columns > 0 && line_.columns + 1 + word_columns > columns_) end_line();
    if (line_.columns > 0) put({" "});
    for (Piece& part : word_) put_broken(std::move(part));
    word_.clear();
  }

  /// Adds a part of a word to the lines. A part that is wider than the rest of the line
  /// is broken.
  void put_broken(Piece part) {
    while (line_.columns + text_columns(part.text) > columns_) {
      if (line_.columns == columns_) end_line();
      const size_t bytes = fitting_bytes(part.text, columns_ - line_.columns);
      put({part.text.substr(0, bytes), part.style});
      part.text.erase(0, bytes);
      if (part.text.empty()) return;
      end_line();
    }
    put(part);
  }

  size_t columns_;
  bool colour_;
  Pieces word_;
  DrawnLine line_;
  std::vector<DrawnLine> lines_;
};

}  // namespace

std::string drawn(const Piece& piece, bool colour) {
  if (!colour || piece.style == kPlain) return piece.text;
  std::string codes;
  const auto add = [&](Style style, const char* code) {
    if ((piece.style & style) != 0)
      codes += (codes.empty() ? "" : ";") + std::string(code);
  };
  add(kBold, "1");
  add(kFaint, "2");
  add(kUnderlined, "4");
  add(kCode, "36");
  return fmt::format("\033[{}m{}\033[0m", codes, piece.text);
}

std::vector<DrawnLine> wrapped(const Pieces& pieces, size_t columns, bool colour) {
  Wrapper wrapper(columns, colour);
  for (const Piece& piece : pieces) wrapper.add(piece);
  return wrapper.finish();
}

size_t natural_columns(const Pieces& pieces) {
  size_t most = 0;
  for (const DrawnLine& line : wrapped(pieces, kEndless, false)) {
    most = std::max(most, line.columns);
  }
  return most;
}

size_t longest_word(const Pieces& pieces) {
  Pieces words = pieces;
  for (Piece& piece : words) std::ranges::replace(piece.text, ' ', '\n');
  return natural_columns(words);
}

}  // namespace longhaul::apps
