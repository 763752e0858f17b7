#include "longhaul/data/tokenizer/normalizers.h"

#include "longhaul/data/tokenizer/byte_alphabet.h"
#include "longhaul/data/tokenizer/char_map.h"
#include "longhaul/data/tokenizer/unicode.h"

namespace longhaul::data {
namespace {

/// Visits each code point of a text and puts another in its place.
template <typename Visit>
void rewrite(std::string& text, Visit&& visit) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint point = decode_at(text.data(), pos);
    visit(point.value, std::string_view(text).substr(pos, point.bytes), out);
    pos += point.bytes;
  }
  text = std::move(out);
}

class Form final : public Normalizer {
 public:
  explicit Form(NormalForm form) : form_(form) {}
  void apply(std::string& text) const override { text = data_.normalize(text, form_); }

 private:
  const UnicodeData& data_ = unicode_data();
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    rewrite(text, [&](uint32_t point, std::string_view, std::string& out) {
      data_.append_lower(point, out);
    });
  }

 private:
  const UnicodeData& data_ = unicode_data();
};

/// Drops the code points with a property.
class Drop final : public Normalizer {
 public:
  explicit Drop(uint16_t property) : property_(property) {}
  void apply(std::string& text) const override {
    rewrite(text, [&](uint32_t point, std::string_view own, std::string& out) {
      if (!(data_.properties(point) & property_)) out.append(own);
    });
  }

 private:
  const UnicodeData& data_ = unicode_data();
  uint16_t property_;
};

class Nmt final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    rewrite(text, [](uint32_t point, std::string_view own, std::string& out) {
      const bool dropped = (point >= 0x01 && point <= 0x08) || point == 0x0B ||
                           (point >= 0x0E && point <= 0x1F) || point == 0x7F ||
                           point == 0x8F || point == 0x9F;
      const bool space =
          point == 0x09 || point == 0x0A || point == 0x0C || point == 0x0D ||
          point == 0x1680 || (point >= 0x200B && point <= 0x200F) || point == 0x2028 ||
          point == 0x2029 || point == 0x2581 || point == 0xFEFF || point == 0xFFFD;
      if (!dropped) out.append(space ? std::string_view(" ") : own);
    });
  }
};

class ByteLevelText final : public Normalizer {
 public:
  void apply(std::string& text) const override { text = bytes_to_token(text); }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text) const override {
    size_t start = 0;
    size_t end = text.size();
    while (left_ && start < end) {
      const CodePoint point = decode_at(text.data(), start);
      if (!(classes_[point.value] & kSpace)) break;
      start += point.bytes;
    }
    while (right_ && end > start) {
      const CodePoint point = decode_before(text.data(), end);
      if (!(classes_[point.value] & kSpace)) break;
      end -= point.bytes;
    }
    text = text.substr(start, end - start);
  }

 private:
  const CharClasses& classes_ = char_classes();
  bool left_;
  bool right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::string& text) const override {
    text = pattern_.replace_all(text, content_);
  }

 private:
  Regex pattern_;
  std::string content_;
};

class Bert final : public Normalizer {
 public:
  explicit Bert(const BertNormalizerOptions& options) : options_(options) {}
  void apply(std::string& text) const override {
    if (options_.clean_text) clean(text);
    if (options_.handle_chinese_chars) space_chinese(text);
    if (options_.strip_accents) {
      text = data_.normalize(text, NormalForm::D);
      strip_marks_.apply(text);
    }
    if (options_.lowercase) lowercase_.apply(text);
  }

 private:
  void clean(std::string& text) const {
    rewrite(text, [&](uint32_t point, std::string_view own, std::string& out) {
      if (data_.properties(point) & kControl) return;
      const bool space = (classes_[point] & kSpace) != 0;
      out.append(space ? std::string_view(" ") : own);
    });
  }
  void space_chinese(std::string& text) const {
    rewrite(text, [](uint32_t point, std::string_view own, std::string& out) {
      const auto in = [&](uint32_t first, uint32_t last) {
        return point >= first && point <= last;
      };
      const bool chinese = in(0x4E00, 0x9FFF) || in(0x3400, 0x4DBF) ||
                           in(0x20000, 0x2A6DF) || in(0x2A700, 0x2B73F) ||
                           in(0x2B740, 0x2B81F) || in(0x2B920, 0x2CEAF) ||
                           in(0xF900, 0xFAFF) || in(0x2F800, 0x2FA1F);
      if (chinese) out.push_back(' ');
      out.append(own);
      if (chinese) out.push_back(' ');
    });
  }

  const UnicodeData& data_ = unicode_data();
  const CharClasses& classes_ = char_classes();
  BertNormalizerOptions options_;
  Lowercase lowercase_;
  Drop strip_marks_{kNonspacingMark};
};

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(std::string_view charsmap) : map_(charsmap) {}
  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    const std::string_view view = text;
    for (size_t pos = 0; pos < view.size();) {
      const size_t end = grapheme_end(data_, view, pos);
      add_cluster(view.substr(pos, end - pos), out);
      pos = end;
    }
    text = std::move(out);
  }

 private:
  /// A short cluster as a whole is what its shortest prefix in the map becomes, the rest
  /// of it is lost: so does Hugging Face, and the ids follow from it.
  void add_cluster(std::string_view cluster, std::string& out) const {
    if (cluster.size() < 6) {
      if (const auto found = map_.shortest_prefix(cluster)) {
        out.append(*found);
        return;
      }
    }
    for (size_t pos = 0; pos < cluster.size();) {
      const CodePoint point = decode_at(cluster.data(), pos);
      const std::string_view part = cluster.substr(pos, point.bytes);
      out.append(map_.shortest_prefix(part).value_or(part));
      pos += point.bytes;
    }
  }

  const UnicodeData& data_ = unicode_data();
  CharMap map_;
};

}  // namespace

std::unique_ptr<Normalizer> make_normal_form(NormalForm form) {
  return std::make_unique<Form>(form);
}
std::unique_ptr<Normalizer> make_lowercase() { return std::make_unique<Lowercase>(); }
std::unique_ptr<Normalizer> make_strip_accents() {
  return std::make_unique<Drop>(kCombiningMark);
}
std::unique_ptr<Normalizer> make_nmt() { return std::make_unique<Nmt>(); }
std::unique_ptr<Normalizer> make_byte_level_normalizer() {
  return std::make_unique<ByteLevelText>();
}
std::unique_ptr<Normalizer> make_strip(bool left, bool right) {
  return std::make_unique<Strip>(left, right);
}
std::unique_ptr<Normalizer> make_prepend(std::string text) {
  return std::make_unique<Prepend>(std::move(text));
}
std::unique_ptr<Normalizer> make_replace(Regex pattern, std::string content) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}
std::unique_ptr<Normalizer> make_bert_normalizer(const BertNormalizerOptions& options) {
  return std::make_unique<Bert>(options);
}
std::unique_ptr<Normalizer> make_precompiled(std::string_view charsmap) {
  return std::make_unique<Precompiled>(charsmap);
}

}  // namespace longhaul::data
