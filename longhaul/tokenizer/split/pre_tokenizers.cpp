#include "longhaul/tokenizer/split/pre_tokenizers.h"

#include <algorithm>

#include "longhaul/tokenizer/unicode/byte_alphabet.h"
#include "longhaul/tokenizer/unicode/unicode.h"

namespace longhaul::tokenizer {
namespace {

/// A part of a piece that matches a pattern or lies between matches.
struct Stretch {
  size_t start;
  size_t end;
  bool match;
};

/// Joins or drops parts. The remaining parts are the new pieces.
void behave(std::vector<Stretch>& stretches, SplitBehavior behavior) {
  std::vector<Stretch> kept;
  bool before = false;
  switch (behavior) {
    case SplitBehavior::Isolated:
      return;
    case SplitBehavior::Removed:
      std::erase_if(stretches, [](const Stretch& s) { return s.match; });
      return;
    case SplitBehavior::Contiguous:
    case SplitBehavior::MergedWithPrevious:
      for (const Stretch& stretch : stretches) {
        const bool joins = behavior == SplitBehavior::Contiguous
                               ? stretch.match == before
                               : stretch.match && !before;
        if (joins && !kept.empty()) {
          kept.back().end = stretch.end;
        } else {
          kept.push_back(stretch);
        }
        before = stretch.match;
      }
      break;
    case SplitBehavior::MergedWithNext:
      for (size_t i = stretches.size(); i-- > 0;) {
        const Stretch& stretch = stretches[i];
        if (stretch.match && !before && !kept.empty()) {
          kept.back().start = stretch.start;
        } else {
          kept.push_back(stretch);
        }
        before = stretch.match;
      }
      std::reverse(kept.begin(), kept.end());
      break;
  }
  stretches = std::move(kept);
}

/// Splits every piece. `find(view, add)` calls add(start, end) for each match in order.
template <typename Find>
void cut(Pieces& pieces, SplitBehavior behavior, bool invert, Find&& find) {
  std::vector<Pieces::Piece> out;
  out.reserve(pieces.pieces.size());
  std::vector<Stretch> stretches;
  for (const Pieces::Piece& piece : pieces.pieces) {
    const std::string_view view = pieces.view(piece);
    stretches.clear();
    size_t done = 0;
    find(view, [&](size_t start, size_t end) {
      if (start > done) stretches.push_back({done, start, invert});
      stretches.push_back({start, end, !invert});
      done = end;
    });
    if (done < view.size()) stretches.push_back({done, view.size(), invert});
    behave(stretches, behavior);
    for (const Stretch& stretch : stretches) {
      out.push_back({piece.start + stretch.start, piece.start + stretch.end,
                     piece.at_start - std::min(piece.at_start, stretch.start)});
    }
  }
  pieces.pieces = std::move(out);
}

/// Splits every piece at single code points that `wanted` accepts.
template <typename Wanted>
void cut_points(Pieces& pieces, SplitBehavior behavior, Wanted&& wanted) {
  cut(pieces, behavior, false, [&](std::string_view view, auto&& add) {
    for (size_t pos = 0; pos < view.size();) {
      const CodePoint point = decode_at(view.data(), pos);
      if (wanted(point.value)) add(pos, pos + point.bytes);
      pos += point.bytes;
    }
  });
}

/// Rewrites every piece: `prefix(view, piece)` comes first, then `write(view, text)`
/// appends the new text.
template <typename Prefix, typename Write>
void rewrite(Pieces& pieces, Prefix&& prefix, Write&& write) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 2);
  for (Pieces::Piece& piece : pieces.pieces) {
    const size_t start = text.size();
    const std::string_view view = pieces.view(piece);
    text.append(prefix(view, piece));
    const size_t front = std::min(piece.at_start, view.size());
    write(view.substr(0, front), text);
    if (piece.at_start > 0) piece.at_start = text.size() - start;
    write(view.substr(front), text);
    piece.start = start;
    piece.end = text.size();
  }
  pieces.text = std::move(text);
}

/// Splits at single code points with a property.
PreTokenizer split_property(uint16_t property, SplitBehavior behavior) {
  return [property, behavior, &data = unicode_data()](Pieces& pieces) {
    cut_points(pieces, behavior,
               [&](uint32_t point) { return (data.properties(point) & property) != 0; });
  };
}

}  // namespace

std::optional<SplitBehavior> split_behavior(std::string_view name) {
  if (name == "Removed") return SplitBehavior::Removed;
  if (name == "Isolated") return SplitBehavior::Isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::MergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::MergedWithNext;
  if (name == "Contiguous") return SplitBehavior::Contiguous;
  return std::nullopt;
}

PreTokenizer make_split(Regex pattern, SplitBehavior behavior, bool invert) {
  return [pattern = std::move(pattern), behavior, invert](Pieces& pieces) {
    cut(pieces, behavior, invert, [&](std::string_view view, auto&& add) {
      for (size_t pos = 0; pos < view.size();) {
        const auto match = pattern.find(view, pos);
        if (!match || match->end == match->start) break;
        add(match->start, match->end);
        pos = match->end;
      }
    });
  };
}

PreTokenizer make_known_split(SplitPattern pattern) {
  return [pattern, &classes = char_classes()](Pieces& pieces) {
    cut(pieces, SplitBehavior::Isolated, false, [&](std::string_view view, auto&& add) {
      for (size_t pos = 0; pos < view.size();) {
        const size_t end = next_piece_end(pattern, classes, view, pos);
        add(pos, end);
        pos = end;
      }
    });
  };
}

PreTokenizer make_byte_level(bool add_prefix_space, bool use_regex) {
  const auto split =
      make_known_split(use_regex ? SplitPattern::Gpt2 : SplitPattern::None);
  return [add_prefix_space, split](Pieces& pieces) {
    if (add_prefix_space) {
      rewrite(
          pieces,
          [](std::string_view view, const auto&) {
            return std::string_view(view.front() == ' ' ? "" : " ");
          },
          [](std::string_view part, std::string& text) { text.append(part); });
    }
    split(pieces);
    rewrite(
        pieces, [](std::string_view, const auto&) { return std::string_view(); },
        [](std::string_view part, std::string& text) {
          text.append(bytes_to_token(part));
        });
  };
}

PreTokenizer make_digits(bool individual) {
  return split_property(kNumeric,
                        individual ? SplitBehavior::Isolated : SplitBehavior::Contiguous);
}

PreTokenizer make_punctuation(SplitBehavior behavior) {
  return split_property(kPunctuation, behavior);
}

/// Splits into runs of \w and runs of what is neither \w nor \s.
PreTokenizer make_whitespace() {
  return [&classes = char_classes()](Pieces& pieces) {
    cut(pieces, SplitBehavior::Removed, true, [&](std::string_view view, auto&& add) {
      size_t start = 0;
      uint8_t kind = kSpace;
      for (size_t pos = 0; pos < view.size();) {
        const CodePoint point = decode_at(view.data(), pos);
        const uint8_t next = classes[point.value] & (kWord | kSpace);
        if (next != kind) {
          if (!(kind & kSpace)) add(start, pos);
          start = pos;
          kind = next;
        }
        pos += point.bytes;
      }
      if (!(kind & kSpace)) add(start, view.size());
    });
  };
}

PreTokenizer make_whitespace_split() {
  return [&classes = char_classes()](Pieces& pieces) {
    cut_points(pieces, SplitBehavior::Removed,
               [&](uint32_t point) { return (classes[point] & kSpace) != 0; });
  };
}

PreTokenizer make_bert_pre_tokenizer() {
  return [spaces = make_whitespace_split(),
          punctuation = make_punctuation(SplitBehavior::Isolated)](Pieces& pieces) {
    spaces(pieces);
    punctuation(pieces);
  };
}

PreTokenizer make_delimiter_split(uint32_t delimiter) {
  return [delimiter](Pieces& pieces) {
    cut_points(pieces, SplitBehavior::Removed,
               [&](uint32_t point) { return point == delimiter; });
  };
}

PreTokenizer make_metaspace(const MetaspaceOptions& options) {
  std::string mark;
  append_utf8(options.replacement, mark);
  return [options, mark](Pieces& pieces) {
    rewrite(
        pieces,
        [&](std::string_view view, const Pieces::Piece& piece) {
          const bool starts = view.front() == ' ' || view.starts_with(mark);
          const bool wanted =
              options.scheme == PrependScheme::Always ||
              (options.scheme == PrependScheme::First && piece.at_start > 0);
          return wanted && !starts ? std::string_view(mark) : std::string_view();
        },
        [&](std::string_view part, std::string& text) {
          for (const char c : part) {
            if (c == ' ') {
              text.append(mark);
            } else {
              text.push_back(c);
            }
          }
        });
    if (!options.split) return;
    cut_points(pieces, SplitBehavior::MergedWithNext,
               [&](uint32_t point) { return point == options.replacement; });
  };
}

}  // namespace longhaul::tokenizer
