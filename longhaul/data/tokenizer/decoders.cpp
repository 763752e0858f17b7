#include "longhaul/data/tokenizer/decoders.h"

#include <utility>

#include "longhaul/base/text.h"
#include "longhaul/data/tokenizer/byte_alphabet.h"
#include "longhaul/data/tokenizer/unicode.h"
#include "longhaul/data/tokenizer/vocabulary.h"

namespace longhaul::data {
namespace {

using Tokens = std::vector<std::string>;

std::string join(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

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

class ByteLevel final : public TokenDecoder {
 public:
  void apply(Tokens& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) {
      bytes += token_to_bytes(token).value_or(token);
    }
    tokens = {utf8_lossy(bytes)};
  }
};

class WordPiece final : public TokenDecoder {
 public:
  WordPiece(std::string prefix, bool cleanup)
      : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0 && token.starts_with(prefix_)) {
        token.erase(0, prefix_.size());
      } else if (i > 0) {
        token.insert(0, 1, ' ');
      }
      if (cleanup_) clean(token);
    }
  }

 private:
  static void clean(std::string& token) {
    constexpr std::pair<std::string_view, std::string_view> kRules[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (const auto& [from, to] : kRules) replace_all(token, from, to);
  }
  std::string prefix_;
  bool cleanup_;
};

class Metaspace final : public TokenDecoder {
 public:
  Metaspace(uint32_t replacement, PrependScheme scheme) : scheme_(scheme) {
    append_utf8(replacement, mark_);
  }
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool dropped = i == 0 && scheme_ != PrependScheme::Never;
      replace_all(tokens[i], mark_, dropped ? "" : " ");
    }
  }

 private:
  std::string mark_;
  PrependScheme scheme_;
};

class ByteFallback final : public TokenDecoder {
 public:
  void apply(Tokens& tokens) const override {
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
  }
};

class Fuse final : public TokenDecoder {
 public:
  void apply(Tokens& tokens) const override { tokens = {join(tokens)}; }
};

class ReplaceDecoder final : public TokenDecoder {
 public:
  ReplaceDecoder(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) token = pattern_.replace_all(token, content_);
  }

 private:
  Regex pattern_;
  std::string content_;
};

class StripDecoder final : public TokenDecoder {
 public:
  StripDecoder(uint32_t content, size_t start, size_t stop) : start_(start), stop_(stop) {
    append_utf8(content, content_);
  }
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view left = token;
      for (size_t i = 0; i < start_ && left.starts_with(content_); ++i) {
        left.remove_prefix(content_.size());
      }
      for (size_t i = 0; i < stop_ && left.ends_with(content_); ++i) {
        left.remove_suffix(content_.size());
      }
      token = std::string(left);
    }
  }

 private:
  std::string content_;
  size_t start_;
  size_t stop_;
};

class BpeDecoder final : public TokenDecoder {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
    }
  }

 private:
  std::string suffix_;
};

}  // namespace

std::unique_ptr<TokenDecoder> make_byte_level_decoder() {
  return std::make_unique<ByteLevel>();
}
std::unique_ptr<TokenDecoder> make_word_piece_decoder(std::string prefix, bool cleanup) {
  return std::make_unique<WordPiece>(std::move(prefix), cleanup);
}
std::unique_ptr<TokenDecoder> make_metaspace_decoder(uint32_t replacement,
                                                     PrependScheme scheme) {
  return std::make_unique<Metaspace>(replacement, scheme);
}
std::unique_ptr<TokenDecoder> make_byte_fallback_decoder() {
  return std::make_unique<ByteFallback>();
}
std::unique_ptr<TokenDecoder> make_fuse_decoder() { return std::make_unique<Fuse>(); }
std::unique_ptr<TokenDecoder> make_replace_decoder(Regex pattern, std::string content) {
  return std::make_unique<ReplaceDecoder>(std::move(pattern), std::move(content));
}
std::unique_ptr<TokenDecoder> make_strip_decoder(uint32_t content, size_t start,
                                                 size_t stop) {
  return std::make_unique<StripDecoder>(content, start, stop);
}
std::unique_ptr<TokenDecoder> make_bpe_decoder(std::string suffix) {
  return std::make_unique<BpeDecoder>(std::move(suffix));
}

}  // namespace longhaul::data
