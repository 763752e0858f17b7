#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/tokenizer/tables/flat_maps.h"

namespace longhaul::tokenizer {

// The generated tables (unicode_data.cpp).
extern const uint32_t kPropertyRuns[];  // length << 16 | properties
extern const size_t kPropertyRunsCount;
extern const uint32_t kMappings[];  // kind << 29 | length << 24 | code point, text
extern const size_t kMappingsCount;
extern const uint32_t kCombiningClasses[];  // class << 24 | code point
extern const size_t kCombiningClassesCount;
extern const uint32_t kCompositions[];  // first, second, composed
extern const size_t kCompositionsCount;

/// Properties of a code point besides CharClass, as parts of Hugging Face tokenizers
/// define them. The low five bits are the general category.
enum CharProperty : uint16_t {
  kCategoryMask = 31,
  kPunctuation = 32,      ///< Punctuation and BertPreTokenizer
  kNumeric = 64,          ///< Digits
  kControl = 128,         ///< BertNormalizer's clean_text drops it
  kNonspacingMark = 256,  ///< BertNormalizer's strip_accents drops it
  kCombiningMark = 512,   ///< StripAccents drops it
  kRegexWord = 1024,      ///< \w of the split patterns
  kGraphemeShift = 11,    ///< place of the three bits of the grapheme class
  kGraphemeMask = 7 << kGraphemeShift,
  /// Computed: form C may change the code point, or join it to the one before.
  kMovesInFormC = 1 << 14,
};

/// Names of the general categories, in the order of their numbers (from 1).
inline constexpr std::string_view kCategoryNames[] = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};

enum class NormalForm { C, D, KC, KD };

/// Where a code point of a changed text comes from. `change` is 1 for a new code point.
/// Any other code point takes the next code point of the old text. If `change` is
/// negative, it takes -change more code points.
struct PointChange {
  size_t bytes;  ///< bytes of the code point
  int change;
};

/// The Unicode tables in a form for looking up. Immutable; any number of threads may use
/// it.
class UnicodeData {
 public:
  UnicodeData();
  uint16_t properties(uint32_t code_point) const { return properties_[code_point]; }
  int category(uint32_t code_point) const {
    return properties_[code_point] & kCategoryMask;
  }
  int grapheme_class(uint32_t code_point) const {
    return (properties_[code_point] & kGraphemeMask) >> kGraphemeShift;
  }
  /// Appends the lower case of a code point.
  void append_lower(uint32_t code_point, std::string& out) const;
  /// Returns valid UTF-8 in a normal form.
  std::string normalize(std::string_view text, NormalForm form) const;
  /// Returns how normalize() makes each code point of its result.
  std::vector<PointChange> normal_changes(std::string_view text, NormalForm form) const;

 private:
  enum class Kind { Canonical, Compatible, Lower };
  struct Mark {
    uint32_t point;
    uint8_t combining_class;
    int16_t change = 0;  // see PointChange
  };
  /// Returns the entry of kMappings, or nullptr.
  const uint32_t* mapping(Kind kind, uint32_t code_point) const;
  void mark_moving();
  std::string normalize_all(std::string_view text, NormalForm form) const;
  std::vector<Mark> normal_marks(std::string_view text, NormalForm form) const;
  void decompose(uint32_t code_point, bool compatible, std::vector<Mark>& out) const;
  void compose(std::vector<Mark>& marks) const;
  uint32_t composed(uint32_t first, uint32_t second) const;

  std::vector<uint16_t> properties_;
  FlatMap<uint32_t> mappings_;
  FlatMap<uint8_t> combining_classes_;
  FlatMap<uint32_t> compositions_;
};

/// Returns the tables, which the first call builds.
const UnicodeData& unicode_data();

/// Appends a code point as UTF-8.
void append_utf8(uint32_t code_point, std::string& out);

/// Returns the end of the grapheme cluster that starts at `pos` of valid UTF-8.
size_t grapheme_end(const UnicodeData& data, std::string_view text, size_t pos);

}  // namespace longhaul::tokenizer
