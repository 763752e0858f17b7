#include "apps/passport/hard_texts.h"

#include <iterator>
#include <string_view>
#include <utility>

#include "longhaul/base/random.h"
#include "longhaul/base/text.h"
#include "longhaul/tokenizer/unicode/unicode_data.h"

namespace longhaul::apps {
namespace {

/// Parts of texts, with ~ between them.
constexpr std::string_view kParts =
    "the~ and~ The~ing~ don't~'ll~'S~ I'VE~x_1~camelCase~HTTPServer2~foo(bar);~->~!==~ "
    "...~?!~\"~ #~\\n~--~</p>~<s>~</s>~<unk>~[MASK]~<|endoftext|>~##~▁~Ġ~ Привет~ёлка~"
    "ΣΑΣ~ straße~İ~ﬁ~½~Ⅻ~²~１２~日本語~你好。~한국어~ "
    "ไทย~हिन्दी~مرحبا~שָׁלוֹם~e\xCC\x81~A\xCC\x8A~\xC3\x85~"
    "👩‍👩‍👧‍👦~🏳️‍🌈~👍🏽~🇩🇪~\xC2\xA0~\xE2\x80\x8B~"
    "\xE3\x80\x80~"
    "\xEF\xBB\xBF~"
    "\r\n~\n\n~\t\t~\x7F~"
    "1e-9~0xFF~12,345.67~%20~€~“q”~ — ~’s~°C";

/// Ranges of characters that are assigned in every table of Unicode in use.
constexpr std::pair<uint32_t, uint32_t> kRanges[] = {
    {0x21, 0x7E},     {0xA1, 0x17F},    {0x3B1, 0x3C9},    {0x410, 0x44F},
    {0x5D0, 0x5EA},   {0x627, 0x64A},   {0x905, 0x939},    {0x3041, 0x3096},
    {0x4E00, 0x9FA5}, {0xAC00, 0xD7A3}, {0x1F600, 0x1F64F}};
constexpr std::string_view kBlanks = "    \n\t ";

/// Draws numbers for one text.
class Draws {
 public:
  explicit Draws(size_t text) : text_(text) {}
  size_t below(size_t bound) {
    const uint64_t key = 0x70617373706F7274;  // any fixed number
    return philox(key, count_++, text_)[0] % bound;
  }

 private:
  uint64_t text_;
  uint64_t count_ = 0;
};

void append_part(const std::vector<std::string_view>& parts, Draws& draws,
                 std::string& text) {
  const size_t kind = draws.below(8);
  const size_t length = 1 + draws.below(6);
  if (kind < 5) {
    text += parts[draws.below(parts.size())];
    return;
  }
  const auto [first, last] = kRanges[draws.below(std::size(kRanges))];
  for (size_t i = 0; i < length; ++i) {
    if (kind == 5) text += static_cast<char>('0' + draws.below(10));
    if (kind == 6) text += kBlanks[draws.below(kBlanks.size())];
    if (kind == 7) {
      const auto offset = static_cast<uint32_t>(draws.below(last - first + 1));
      tokenizer::append_utf8(first + offset, text);
    }
  }
}

}  // namespace

std::vector<std::string> hard_texts(size_t count) {
  const std::vector<std::string_view> parts = split(kParts, '~');
  std::vector<std::string> texts(count);
  for (size_t i = 0; i < count; ++i) {
    Draws draws(i);
    const size_t length = 2 + draws.below(10);
    for (size_t part = 0; part < length; ++part) {
      append_part(parts, draws, texts[i]);
      if (draws.below(3) == 0) texts[i] += ' ';
    }
  }
  return texts;
}

}  // namespace longhaul::apps
