#include "longhaul/data/store/self_test.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/chat/chat_format.h"
#include "longhaul/data/store/store.h"
#include "longhaul/data/store/store_fields.h"

namespace longhaul::data {
namespace {

/// Short, unusual texts: spaces, digits, contractions, scripts, combining marks, joined
/// emoji, private-use characters, and characters that normalizers change.
constexpr const char* kTexts[] = {
    "Hello, world! It's 12,345.67 o'clock; they'll've gone.",
    "  two spaces\tand a tab \n\n newlines   at the end   ",
    "def f(x):\n    return x**2  # comment\n\n\tif (a->b != 0xFF) { c += 1e-9; }",
    "0 1 12 123 1234 12345 1234567890 ½ Ⅻ ² １２３",
    "Ａ ﬁ ㎏ İstanbul ıI ǅ ß ẞ",
    "café cafe\xCC\x81 A\xCC\x8A\xC3\x85 \xE1\xB8\xA9\xCC\xA3",
    "Привет, мир! Ёлка — это «дерево».",
    "你好，世界。日本語のテキスト、한국어 텍스트도 있다.",
    "مرحبا بالعالم نَصٌّ עִבְרִית हिन्दी ภาษาไทย",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪 e\xCC\x81\xE2\x80\x8D",
    "\xE2\x80\x8B\xC2\xA0\xE2\x80\xA8\xEF\xBB\xBF\xEE\x80\x80 \xF4\x8F\xBF\xBD "
    "\xF0\x9D\x94\xB8",
    "<s> </s> <unk> [CLS] [MASK] <|endoftext|> <|begin_of_text|> ▁ Ġ ##ing",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "https://example.org/a?b=c&d=%20#e user@example.org C:\\path\\to\\file",
    "a\r\nb\rc\x01\x7F",
};

std::string shortened(std::string text) {
  constexpr size_t kShown = 60;
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  if (text.size() <= kShown) return text;
  size_t end = kShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "...";
}

std::string id_at(const std::vector<tokenizer::TokenId>& ids, size_t place) {
  return place < ids.size() ? std::to_string(ids[place]) : "none";
}

}  // namespace

std::string SelfTest::hash() const { return hash_hex(self_test_text(*this)); }

SelfTest make_self_test(const tokenizer::Tokenizer& tokenizer,
                        const std::vector<std::string>& more) {
  SelfTest test;
  std::vector<std::string> texts(std::begin(kTexts), std::end(kTexts));
  texts.insert(texts.end(), more.begin(), more.end());
  for (std::string& text : texts) {
    try {
      test.ids.push_back(tokenizer.encode(text, false));
    } catch (const InputError&) {
      continue;  // the vocabulary cannot express a character
    }
    test.texts.push_back(std::move(text));
  }
  return test;
}

std::string self_test_text(const SelfTest& test) {
  OrderedJson json = OrderedJson::array();
  for (size_t i = 0; i < test.texts.size(); ++i) {
    json.push_back({{"text", test.texts[i]}, {"ids", test.ids[i]}});
  }
  return json.dump() + "\n";
}

SelfTest read_self_test(const fs::path& path) {
  const Json json = read_json(path, uint64_t{1} << 24);
  SelfTest test;
  if (!json.is_array()) {
    throw InputError("data", path.string() +
                                 ": not a self-test of a token store; build "
                                 "the store again or copy it again");
  }
  for (const Json& entry : json) {
    const JsonFields fields = store_fields(entry, path);
    test.texts.push_back(fields.get<std::string>("text"));
    test.ids.push_back(fields.get<std::vector<tokenizer::TokenId>>("ids"));
  }
  return test;
}

void check_self_test(const fs::path& store, const tokenizer::Tokenizer& tokenizer,
                     const std::string& whose) {
  const fs::path file = store / kSelfTestName;
  if (!is_token_store(store) || !fs::exists(file)) return;
  const SelfTest test = read_self_test(file);
  for (size_t i = 0; i < test.texts.size(); ++i) {
    const std::vector<tokenizer::TokenId> now = tokenizer.encode(test.texts[i], false);
    const std::vector<tokenizer::TokenId>& then = test.ids[i];
    if (now == then) continue;
    const auto place = static_cast<size_t>(
        std::mismatch(now.begin(), now.end(), then.begin(), then.end()).first -
        now.begin());
    throw InputError(
        "data",
        fmt::format("{}: {} makes other ids than the tokenizer that built the store: of "
                    "'{}' id {} is {} where it was {}; train with the store's own "
                    "tokenizer ({}), or build the store again",
                    store.string(), whose, shortened(test.texts[i]), place,
                    id_at(now, place), id_at(then, place),
                    (store / "tokenizer").string()));
  }
}

std::string compare_templates(const fs::path& store,
                              const tokenizer::Tokenizer& tokenizer,
                              const objects::Pieces* pieces) {
  if (!is_token_store(store)) return {};
  const StoreInfo info = read_store_info(store, pieces);
  if (!info.chat) return {};
  const fs::path dir = tokenizer.files().front().parent_path();
  std::string beside;
  try {
    beside = chat::ChatFormat(dir).hash();
  } catch (const InputError& error) {
    return fmt::format(
        "{}: exports of this run carry no chat template ({}); the template of the "
        "store's "
        "{} is in {}",
        store.string(), error.what(), info.kind, (store / "tokenizer").string());
  }
  if (beside == info.chat->template_hash) return {};
  return fmt::format(
      "{}: its {} were written by the template {}, and exports of this run carry the "
      "template {} of {}; build the store again with --tokenizer {}, or copy the "
      "template of {} to the model",
      store.string(), info.kind, info.chat->template_hash, beside, dir.string(),
      dir.string(), (store / "tokenizer").string());
}

}  // namespace longhaul::data
