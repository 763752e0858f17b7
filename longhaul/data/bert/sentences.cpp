#include "longhaul/data/bert/sentences.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <string>

#include "longhaul/base/text.h"

namespace longhaul::data {
namespace {

constexpr std::string_view kBlanks = " \t\r\f\v";
constexpr std::array<std::string_view, 5> kWideEnds = {"。", "！", "？", "｡", "…"};
constexpr std::array<std::string_view, 10> kClosing = {"\"", "'", ")",  "]",  "”",
                                                       "’",  "»", "」", "』", "）"};
/// Abbreviations in lower case, without their final point.
constexpr std::array<std::string_view, 30> kAbbreviations = {
    "mr",  "mrs", "ms",  "dr",  "prof", "st", "sr",  "jr",  "vs",   "etc",
    "e.g", "i.e", "cf",  "al",  "fig",  "no", "vol", "pp",  "ed",   "inc",
    "ltd", "co",  "gen", "col", "capt", "lt", "rev", "hon", "dept", "approx"};

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

template <size_t kCount>
size_t match_any(std::string_view text, size_t at,
                 const std::array<std::string_view, kCount>& words) {
  for (const std::string_view word : words) {
    if (text.substr(at).starts_with(word)) return word.size();
  }
  return 0;
}

/// Returns true when the full stop at `at` belongs to the word before it, as in "Dr.".
bool belongs_to_word(std::string_view text, size_t at) {
  size_t begin = at;
  while (begin > 0 && (is_letter(text[begin - 1]) || text[begin - 1] == '.')) --begin;
  std::string word(text.substr(begin, at - begin));
  if (word.size() == 1) return word[0] >= 'A' && word[0] <= 'Z';
  std::ranges::transform(word, word.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return std::ranges::find(kAbbreviations, word) != kAbbreviations.end();
}

/// Returns the end of the sentence whose last mark may be at `at`; 0 when no sentence
/// ends there.
size_t end_after_mark(std::string_view text, size_t at) {
  const size_t wide = match_any(text, at, kWideEnds);
  const char mark = text[at];
  if (wide == 0 && mark != '.' && mark != '!' && mark != '?') return 0;
  const bool needs_blank = wide == 0 || text.substr(at, wide) == kWideEnds.back();
  if (mark == '.' && belongs_to_word(text, at)) return 0;
  size_t end = at + std::max<size_t>(wide, 1);
  for (size_t more = 1; more > 0 && end < text.size();) {
    more = match_any(text, end, kWideEnds) + match_any(text, end, kClosing);
    if (more == 0 && (text[end] == '.' || text[end] == '!' || text[end] == '?')) more = 1;
    end += more;
  }
  if (end >= text.size() || !needs_blank) return end;
  if (kBlanks.find(text[end]) == std::string_view::npos) return 0;
  const size_t next = text.find_first_not_of(kBlanks, end);
  const bool goes_on =
      next != std::string_view::npos && text[next] >= 'a' && text[next] <= 'z';
  return goes_on ? 0 : end;
}

void split_line(std::string_view line, std::vector<std::string_view>& sentences) {
  size_t begin = 0;
  const auto add = [&](size_t end) {
    const std::string_view sentence = trimmed(line.substr(begin, end - begin), kBlanks);
    if (!sentence.empty()) sentences.push_back(sentence);
    begin = end;
  };
  for (size_t at = 0; at < line.size();) {
    const size_t end = end_after_mark(line, at);
    if (end > 0) add(end);
    at = std::max(at + 1, end);
  }
  add(line.size());
}

}  // namespace

std::vector<std::vector<std::string_view>> split_documents(std::string_view text,
                                                           SentenceRule rule) {
  std::vector<std::vector<std::string_view>> documents;
  std::vector<std::string_view> sentences;
  const auto end_document = [&] {
    if (!sentences.empty()) documents.push_back(std::move(sentences));
    sentences.clear();
  };
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end), kBlanks);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (rule == SentenceRule::Punctuation) {
      split_line(line, sentences);
    } else if (line.empty()) {
      end_document();
    } else {
      sentences.push_back(line);
    }
  }
  end_document();
  return documents;
}

}  // namespace longhaul::data
