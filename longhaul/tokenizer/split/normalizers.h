#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/tokenizer/split/regex.h"
#include "longhaul/tokenizer/unicode/unicode_data.h"

namespace longhaul::tokenizer {

/// A text on its way through the normalizers. The text is valid UTF-8.
struct NormalText {
  std::string text;
  /// The number of first bytes that Hugging Face's alignments map to the first byte of
  /// the original text, 0 once that byte is gone. Metaspace's scheme "first" depends on
  /// it.
  size_t at_start = 0;
};

/// One normalizer of a tokenizer.json. Any number of threads may call a normalizer.
using Normalizer = std::function<void(NormalText&)>;
using Normalizers = std::vector<Normalizer>;

Normalizer make_normal_form(NormalForm form);
Normalizer make_lowercase();
Normalizer make_strip_accents();
Normalizer make_nmt();
Normalizer make_byte_level_normalizer();
Normalizer make_strip(bool left, bool right);
/// Returns a normalizer that puts `text` before a text that is not empty.
Normalizer make_prepend(std::string text);
Normalizer make_replace(Regex pattern, std::string content);

struct BertNormalizerOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};
Normalizer make_bert_normalizer(const BertNormalizerOptions& options);

/// Returns a normalizer that applies SentencePiece's compiled map of characters as
/// Hugging Face does. Throws InputError if the bytes are no such map.
Normalizer make_precompiled(std::string_view charsmap);

}  // namespace longhaul::tokenizer
