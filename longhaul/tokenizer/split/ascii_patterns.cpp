#include "longhaul/tokenizer/split/patterns.h"

#include <bit>

namespace longhaul::tokenizer {
namespace {

/// Returns the bits below `bit`.
uint64_t below(size_t bit) { return bit >= 64 ? ~uint64_t{0} : (uint64_t{1} << bit) - 1; }

/// Returns the bytes of `set` whose previous byte is not in the set.
uint64_t starts(uint64_t set) { return set & ~(set << 1); }

/// The classes of the bytes that are ASCII and belong to the text.
struct Window {
  uint64_t valid;
  uint64_t letters;
  uint64_t digits;
  uint64_t spaces;
  uint64_t signs;    // neither letter, digit nor space
  uint64_t visible;  // all but spaces

  Window(const AsciiClasses& c, uint64_t judged)
      : valid(judged),
        letters(c.letters & judged),
        digits(c.digits & judged),
        spaces(c.spaces & judged),
        signs(judged & ~(c.letters | c.digits | c.spaces)),
        visible(judged & ~c.spaces) {}
};

/// Returns the end of the piece at the apostrophe `quote` if it is 's 't 're 've 'm 'll
/// 'd, else 0. `count` bytes of the text are known.
size_t contraction_end(const char* text, size_t quote, size_t count, bool any_case) {
  const auto byte = [&](size_t i) { return i < count ? text[i] : '\0'; };
  const size_t letters = contraction_letters(byte(quote + 1), byte(quote + 2), any_case);
  return letters == 0 ? 0 : quote + 1 + letters;
}

/// Returns the starts of pieces of three digits, counted from the start of each run.
uint64_t by_three(uint64_t digits) {
  uint64_t found = starts(digits);
  const uint64_t fourth = digits & (digits << 1) & (digits << 2) & (digits << 3);
  for (uint64_t next = found; fourth != 0 && next != 0;) {
    next = (next << 3) & fourth;
    found |= next;
  }
  return found;
}

/// Returns the newlines right behind signs, which belong to the signs.
uint64_t behind_signs(uint64_t newlines, uint64_t signs) {
  const uint64_t first = newlines & (signs << 1);
  return newlines & ~(newlines + first);
}

/// Returns the starts of pieces of white space for patterns in which newlines end pieces.
/// A run is cut behind its last newline, and its last character belongs to what follows
/// or is a piece.
uint64_t space_starts(const Window& w, uint64_t run, uint64_t blanks, uint64_t newlines) {
  uint64_t behind = blanks & ((newlines & run) << 1);
  const uint64_t ends = (blanks + behind) & ~blanks;
  for (uint64_t again = ends & newlines & run; again != 0; again &= again - 1) {
    // A newline comes later in the run, and the run is cut behind that one only.
    const auto newline = static_cast<size_t>(std::countr_zero(again));
    behind &= ~std::bit_floor(behind & below(newline));
  }
  return starts(run) | behind | (blanks & (w.visible >> 1));
}

/// Removes the highest positions, whose pieces depend on what follows.
uint64_t certain(const Window& w, uint64_t found) {
  return (found & below(static_cast<size_t>(std::bit_width(w.visible)))) | 1;
}

uint64_t gpt2(const AsciiClasses& c, Window w, const char* text, size_t count) {
  // A space belongs to the letters, digits or signs that follow it.
  const uint64_t after_blank = (c.blanks & w.valid) << 1;
  uint64_t letter_starts = starts(w.letters) & ~after_blank;
  uint64_t found = starts(w.digits) & ~after_blank;
  const uint64_t sign_starts = starts(w.signs) & ~after_blank;
  uint64_t quotes = sign_starts & c.quotes & (w.letters >> 1);
  for (; quotes != 0; quotes &= quotes - 1) {
    const auto quote = static_cast<size_t>(std::countr_zero(quotes));
    if (quote + 2 >= count) {
      w.visible &= below(quote + 1);
      break;
    }
    const size_t end = contraction_end(text, quote, count, false);
    if (end == 0) continue;
    letter_starts &= ~(uint64_t{2} << quote);
    if (end < 64) found |= uint64_t{1} << end;
  }
  found |= letter_starts | sign_starts;
  found |= starts(w.spaces) | (w.spaces & (w.visible >> 1));
  return certain(w, found);
}

/// Returns the starts of pieces of Llama-3, cl100k and Qwen-2, which differ in how digits
/// are cut.
uint64_t cl100k(const AsciiClasses& c, const Window& w, const char* text, size_t count,
                bool digits_apart) {
  const uint64_t newlines = c.newlines & w.valid;
  const uint64_t run = w.spaces & ~behind_signs(newlines, w.signs);
  const uint64_t blanks = w.spaces & ~newlines;
  const uint64_t sign_starts = starts(w.signs) & ~((c.blanks & w.valid) << 1);
  // One sign or space before letters belongs to them.
  uint64_t found = starts(w.letters) & ~((blanks | sign_starts) << 1);
  uint64_t quotes = sign_starts & c.quotes & (w.letters >> 1);
  for (; quotes != 0; quotes &= quotes - 1) {
    const auto quote = static_cast<size_t>(std::countr_zero(quotes));
    const size_t end = contraction_end(text, quote, count, true);
    if (end != 0 && end < 64) found |= uint64_t{1} << end;
  }
  found |= sign_starts | space_starts(w, run, blanks, newlines);
  found |= digits_apart ? w.digits : by_three(w.digits);
  return certain(w, found);
}

/// Returns the starts of words by case. The general matcher handles rare cases:
/// contractions, which belong to the word before, and slashes behind newlines behind
/// signs.
uint64_t o200k(const AsciiClasses& c, Window w) {
  const uint64_t taken = behind_signs(c.newlines & w.valid, w.signs);
  const uint64_t no_letter_next = (w.valid & ~w.letters) >> 1;
  const uint64_t left_out =
      (c.quotes & (w.letters << 1) & ~no_letter_next) | (c.slashes & (taken << 1));
  if (const uint64_t first = left_out & w.valid) {
    w = Window(c, w.valid & below(static_cast<size_t>(std::countr_zero(first))));
  }
  const uint64_t newlines = c.newlines & w.valid;
  const uint64_t run = w.spaces & ~behind_signs(newlines, w.signs);
  const uint64_t blanks = w.spaces & ~newlines;
  const uint64_t sign_starts = starts(w.signs) & ~((c.blanks & w.valid) << 1);
  const uint64_t uppers = c.uppers & w.valid;
  const uint64_t lowers = w.letters & ~uppers;
  uint64_t found = starts(w.letters) & ~((blanks | sign_starts) << 1);
  found |= uppers & (lowers << 1);
  found |= sign_starts | space_starts(w, run, blanks, newlines) | by_three(w.digits);
  return certain(w, found);
}

}  // namespace

uint64_t ascii_piece_starts(SplitPattern pattern, const AsciiClasses& classes,
                            const char* text, size_t count) {
  const size_t ascii = static_cast<size_t>(std::countr_zero(classes.others));
  const Window window(classes, below(count) & below(ascii));
  switch (pattern) {
    case SplitPattern::Gpt2:
      return gpt2(classes, window, text, count);
    case SplitPattern::Llama3:
      return cl100k(classes, window, text, count, false);
    case SplitPattern::Qwen2:
      return cl100k(classes, window, text, count, true);
    case SplitPattern::O200k:
      return o200k(classes, window);
    case SplitPattern::None:
      break;
  }
  return 1;
}

}  // namespace longhaul::tokenizer
