#include "longhaul/tokenizer/file/tokenizer_json_parts.h"

#include <cstdint>
#include <string>

#include "longhaul/tokenizer/unicode/unicode.h"

namespace longhaul::tokenizer {
namespace {

int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

/// Decodes standard base64 with padding. Returns nothing if the text is something else.
std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) {
    text.remove_suffix(1);
    ++padding;
  }
  std::string out;
  out.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int digit = digit_of(c);
    if (digit < 0) return std::nullopt;
    bits = (bits << 6) | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>((bits >> count) & 0xFF));
    }
  }
  return out;
}

constexpr int kMaxSequenceDepth = 4;  // levels of sequences in sequences

uint32_t read_char(const JsonNode& node) {
  const std::string& text = node.text();
  if (text.empty() || decode_at(text.data(), 0).bytes != text.size()) {
    node.fail("\"{}\" is not one character", text);
  }
  return decode_at(text.data(), 0).value;
}

Regex read_pattern(const JsonNode& node) {
  const JsonNode regex = node.member("Regex");
  if (!regex.is_null()) {
    try {
      return Regex(regex.text());
    } catch (const InputError& error) {
      regex.fail("{}", error.what());
    }
  }
  const JsonNode text = node.member("String");
  if (text.is_null()) node.fail("expected a Regex or a String");
  if (text.text().empty()) text.fail("the pattern is empty");
  return Regex::literal(text.text());
}

/// Reads what replaces a pattern. Hugging Face may read $1 there as a group.
std::string read_content(const JsonNode& node) {
  const JsonNode content = node.member("content");
  const bool regex = !node.member("pattern").member("Regex").is_null();
  if (regex && content.text().find('$') != std::string::npos) {
    content.fail("a replacement that refers to groups of the pattern is not supported");
  }
  if (content.text().size() > 1024) {
    content.fail("the replacement is longer than 1024 bytes");
  }
  return content.text();
}

BertNormalizerOptions read_bert_options(const JsonNode& node) {
  BertNormalizerOptions options;
  options.clean_text = node.flag("clean_text", true);
  options.handle_chinese_chars = node.flag("handle_chinese_chars", true);
  options.lowercase = node.flag("lowercase", true);
  options.strip_accents = node.flag("strip_accents", options.lowercase);
  return options;
}

Normalizer read_charsmap(const JsonNode& node) {
  const JsonNode text = node.member("precompiled_charsmap");
  const auto bytes = decode_base64(text.text());
  if (!bytes) text.fail("not base64");
  try {
    return make_precompiled(*bytes);
  } catch (const InputError& error) {
    text.fail("{}", error.what());
  }
}

Normalizer one_normalizer(const JsonNode& node, const std::string& type) {
  if (type == "NFC") return make_normal_form(NormalForm::C);
  if (type == "NFD") return make_normal_form(NormalForm::D);
  if (type == "NFKC") return make_normal_form(NormalForm::KC);
  if (type == "NFKD") return make_normal_form(NormalForm::KD);
  if (type == "Lowercase") return make_lowercase();
  if (type == "StripAccents") return make_strip_accents();
  if (type == "Nmt") return make_nmt();
  if (type == "ByteLevel") return make_byte_level_normalizer();
  if (type == "BertNormalizer") return make_bert_normalizer(read_bert_options(node));
  if (type == "Precompiled") return read_charsmap(node);
  if (type == "Prepend") return make_prepend(node.member("prepend").text());
  if (type == "Strip") {
    return make_strip(node.flag("strip_left", true), node.flag("strip_right", true));
  }
  if (type == "Replace") {
    return make_replace(read_pattern(node.member("pattern")), read_content(node));
  }
  node.fail(
      "the normalizer {} is not supported; NFC, NFD, NFKC, NFKD, Lowercase, "
      "StripAccents, Strip, Replace, Prepend, Precompiled, BertNormalizer, Nmt, "
      "ByteLevel and Sequence are",
      type);
}

SplitBehavior read_behavior(const JsonNode& node, const char* when_absent) {
  const JsonNode behavior = node.member("behavior");
  const std::string name = behavior.is_null() ? when_absent : behavior.text();
  const auto known = split_behavior(name);
  if (!known) behavior.fail("the behavior \"{}\" is not supported", name);
  return *known;
}

/// Reads the scheme, or `add_prefix_space` of older files.
PrependScheme read_scheme(const JsonNode& node) {
  const JsonNode scheme = node.member("prepend_scheme");
  const bool prefix = node.flag("add_prefix_space", true);
  if (scheme.is_null()) return prefix ? PrependScheme::Always : PrependScheme::Never;
  const std::string& name = scheme.text();
  if (name == "always") return PrependScheme::Always;
  if (name == "first") return PrependScheme::First;
  if (name == "never") return PrependScheme::Never;
  scheme.fail("\"{}\" is not supported; always, first and never are", name);
}

PreTokenizer read_split(const JsonNode& node) {
  const SplitBehavior behavior = read_behavior(node, "");
  const bool invert = node.flag("invert", false);
  const JsonNode regex = node.member("pattern").member("Regex");
  if (regex.json().is_string()) {
    const auto known = split_from_regex(regex.text());
    const bool isolates = behavior == SplitBehavior::Isolated ||
                          (behavior == SplitBehavior::Removed && invert);
    if (known && isolates) return make_known_split(*known);
  }
  return make_split(read_pattern(node.member("pattern")), behavior, invert);
}

PreTokenizer one_pre_tokenizer(const JsonNode& node, const std::string& type) {
  if (type == "Split") return read_split(node);
  if (type == "Whitespace") return make_whitespace();
  if (type == "WhitespaceSplit") return make_whitespace_split();
  if (type == "BertPreTokenizer") return make_bert_pre_tokenizer();
  if (type == "Digits") return make_digits(node.flag("individual_digits", false));
  if (type == "Punctuation") return make_punctuation(read_behavior(node, "Isolated"));
  if (type == "CharDelimiterSplit") {
    return make_delimiter_split(read_char(node.member("delimiter")));
  }
  if (type == "ByteLevel") {
    return make_byte_level(node.flag("add_prefix_space", true),
                           node.flag("use_regex", true));
  }
  if (type == "Metaspace") {
    return make_metaspace({read_char(node.member("replacement")), read_scheme(node),
                           node.flag("split", true)});
  }
  node.fail(
      "the pre-tokenizer {} is not supported; ByteLevel, Split, Digits, Punctuation, "
      "Whitespace, WhitespaceSplit, Metaspace, BertPreTokenizer, CharDelimiterSplit and "
      "Sequence are",
      type);
}

TokenDecoder one_decoder(const JsonNode& node, const std::string& type) {
  if (type == "ByteLevel") return make_byte_level_decoder();
  if (type == "ByteFallback") return make_byte_fallback_decoder();
  if (type == "Fuse") return make_fuse_decoder();
  if (type == "WordPiece") {
    return make_word_piece_decoder(node.member("prefix").text(),
                                   node.flag("cleanup", true));
  }
  if (type == "Metaspace") {
    return make_metaspace_decoder(read_char(node.member("replacement")),
                                  read_scheme(node));
  }
  if (type == "Replace") {
    return make_replace_decoder(read_pattern(node.member("pattern")), read_content(node));
  }
  if (type == "Strip") {
    return make_strip_decoder(read_char(node.member("content")), node.number("start", 0),
                              node.number("stop", 0));
  }
  if (type == "BPEDecoder") {
    const JsonNode suffix = node.member("suffix");
    return make_bpe_decoder(suffix.is_null() ? "</w>" : suffix.text());
  }
  node.fail(
      "the decoder {} is not supported; ByteLevel, WordPiece, Metaspace, ByteFallback, "
      "Fuse, Replace, Strip, BPEDecoder and Sequence are",
      type);
}

/// Appends the parts of a sequence, or a single part.
template <typename Part, typename Read>
void read_parts(const JsonNode& node, const char* members, const Read& read_one,
                std::vector<Part>& parts, int depth = 0) {
  if (node.is_null()) return;
  const std::string type = node.type();
  if (type != "Sequence") {
    parts.push_back(read_one(node, type));
    return;
  }
  if (depth > kMaxSequenceDepth) node.fail("sequences are nested too deep");
  for (const JsonNode& part : node.member(members).elements()) {
    read_parts(part, members, read_one, parts, depth + 1);
  }
}

}  // namespace

void read_normalizer(const JsonNode& node, Normalizers& normalizers) {
  read_parts(node, "normalizers", one_normalizer, normalizers);
}

void read_pre_tokenizer(const JsonNode& node, PreTokenizers& pre_tokenizers) {
  read_parts(node, "pretokenizers", one_pre_tokenizer, pre_tokenizers);
}

void read_decoder(const JsonNode& node, TokenDecoders& decoders) {
  read_parts(node, "decoders", one_decoder, decoders);
}

}  // namespace longhaul::tokenizer
