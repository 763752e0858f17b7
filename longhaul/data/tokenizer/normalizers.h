#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/data/tokenizer/regex.h"
#include "longhaul/data/tokenizer/unicode_data.h"

namespace longhaul::data {

/// A text on its way through the normalizers, valid UTF-8.
struct NormalText {
  std::string text;
  /// How many of its first bytes Hugging Face's alignments lead back to the first byte of
  /// what the person gave: 0 once that is gone. "Metaspace, first" goes by it.
  size_t at_start = 0;
};

/// One normalizer of a tokenizer.json. Immutable; any number of threads.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalText& normal) const = 0;
};

using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

std::unique_ptr<Normalizer> make_normal_form(NormalForm form);
std::unique_ptr<Normalizer> make_lowercase();
std::unique_ptr<Normalizer> make_strip_accents();
std::unique_ptr<Normalizer> make_nmt();
std::unique_ptr<Normalizer> make_byte_level_normalizer();
std::unique_ptr<Normalizer> make_strip(bool left, bool right);
/// Puts `text` before a text that is not empty.
std::unique_ptr<Normalizer> make_prepend(std::string text);
std::unique_ptr<Normalizer> make_replace(Regex pattern, std::string content);

struct BertNormalizerOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};
std::unique_ptr<Normalizer> make_bert_normalizer(const BertNormalizerOptions& options);

/// SentencePiece's compiled map of characters, applied as Hugging Face does. InputError
/// when the bytes are no such map.
std::unique_ptr<Normalizer> make_precompiled(std::string_view charsmap);

}  // namespace longhaul::data
