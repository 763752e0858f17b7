#include "longhaul/tokenizer/pieces/decoders.h"

#include <utility>

#include "longhaul/base/text.h"
#include "longhaul/tokenizer/pieces/vocabulary.h"
#include "longhaul/tokenizer/unicode/byte_alphabet.h"
#include "longhaul/tokenizer/unicode/unicode.h"

namespace longhaul::tokenizer {
namespace {

using Tokens = std::vector<std::string>;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  size_t pos = text.find(from);
  if (pos == std::string::npos) return;
  std::string out;
  size_t done = 0;
  for (; pos != std::string::npos; pos = text.find(from, done)) {
    out.append(text, done, pos - done).append(to);
    done = pos + from.size();
  }
  text = out.append(text, done);
}

void clean_up(std::string& token) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : kRules) replace_all(token, from, to);
}

}  // namespace

TokenDecoder make_byte_level_decoder() {
  return [](Tokens& tokens) {
    std::string bytes;
    for (const std::string& token : tokens) {
      bytes += token_to_bytes(token).value_or(token);
    }
    tokens = {utf8_lossy(bytes)};
  };
}

TokenDecoder make_word_piece_decoder(std::string prefix, bool cleanup) {
  return [prefix = std::move(prefix), cleanup](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0 && token.starts_with(prefix)) {
        token.erase(0, prefix.size());
      } else if (i > 0) {
        token.insert(0, 1, ' ');
      }
      if (cleanup) clean_up(token);
    }
  };
}

TokenDecoder make_metaspace_decoder(uint32_t replacement, PrependScheme scheme) {
  std::string mark;
  append_utf8(replacement, mark);
  return [mark, scheme](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool dropped = i == 0 && scheme != PrependScheme::Never;
      replace_all(tokens[i], mark, dropped ? "" : " ");
    }
  };
}

TokenDecoder make_byte_fallback_decoder() {
  return [](Tokens& tokens) {
    Tokens out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (find_invalid_utf8(bytes)) {
        out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
      } else {
        out.push_back(bytes);
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = byte_of_token(token)) {
        bytes.push_back(static_cast<char>(*byte));
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    tokens = std::move(out);
  };
}

TokenDecoder make_fuse_decoder() {
  return [](Tokens& tokens) {
    std::string text;
    for (const std::string& token : tokens) text += token;
    tokens = {text};
  };
}

TokenDecoder make_replace_decoder(Regex pattern, std::string content) {
  return [pattern = std::move(pattern), content = std::move(content)](Tokens& tokens) {
    for (std::string& token : tokens) token = pattern.replace_all(token, content);
  };
}

TokenDecoder make_strip_decoder(uint32_t content, size_t start, size_t stop) {
  std::string cut;
  append_utf8(content, cut);
  return [cut, start, stop](Tokens& tokens) {
    for (std::string& token : tokens) {
      std::string_view left = token;
      for (size_t i = 0; i < start && left.starts_with(cut); ++i) {
        left.remove_prefix(cut.size());
      }
      for (size_t i = 0; i < stop && left.ends_with(cut); ++i) {
        left.remove_suffix(cut.size());
      }
      token = std::string(left);
    }
  };
}

TokenDecoder make_bpe_decoder(std::string suffix) {
  return [suffix = std::move(suffix)](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
    }
  };
}

}  // namespace longhaul::tokenizer
