#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/sources/arrow_source.h"
#include "longhaul/data/sources/open_source.h"
#include "longhaul/data/store/sample.h"
#include "longhaul/data/store/store.h"
#include "longhaul/data/store/store_source.h"
#include "longhaul/data/tokenizer/tokenizer.h"

namespace longhaul::data {
namespace {

constexpr size_t kListed = 5;

std::string describe_origins(const StoreInfo& info) {
  std::string text;
  for (size_t i = 0; i < std::min(kListed, info.origins.size()); ++i) {
    const StoreOrigin& origin = info.origins[i];
    text += fmt::format("  {}  {}  {} records  {}\n", origin.path,
                        human_bytes(static_cast<double>(origin.bytes)),
                        grouped(origin.records), origin.hash);
  }
  if (info.origins.size() > kListed) {
    text += fmt::format("  ... and {} more\n", info.origins.size() - kListed);
  }
  return text;
}

std::string describe_complete(const TokenStore& store) {
  const StoreInfo& info = store.info();
  std::string text = fmt::format(
      "token store {}, complete\n"
      "documents       {}\n"
      "tokens          {} as {} in {} files, largest id {} of {}\n"
      "text            {}, {:.2f} bytes per token\n"
      "selection       {}\n"
      "tokenizer       {}\n"
      "special tokens  {}\n",
      store.path().string(), grouped(info.documents), grouped(info.tokens),
      dtype_name(info.dtype), info.shards.size(), info.max_token_id, info.vocab_size,
      human_bytes(static_cast<double>(info.text_bytes)),
      static_cast<double>(info.text_bytes) / static_cast<double>(info.tokens),
      info.selection, info.tokenizer_fingerprint, info.special_tokens);
  if (info.special_tokens_in_text > 0) {
    text += fmt::format(
        "                {} BOS or EOS tokens stood in the texts themselves\n",
        grouped(info.special_tokens_in_text));
  }
  for (const auto& [cause, count] : info.dropped) {
    text += fmt::format("left out        {} records: {}\n", grouped(count), cause);
  }
  text += "made from\n" + describe_origins(info);
  const auto tokenizer = Tokenizer::load(store.path() / "tokenizer");
  text += fmt::format("first document  {}\n", decoded_sample(store, *tokenizer));
  return text;
}

}  // namespace

std::optional<std::string> describe_store(const fs::path& path) {
  if (is_saved_dataset(path)) return describe_saved_dataset(path);
  if (!is_token_store(path)) return std::nullopt;
  try {
    return describe_complete(TokenStore(path));
  } catch (const InputError& error) {
    return fmt::format("token store {}, NOT COMPLETE\n{}\n", path.string(), error.what());
  }
}

}  // namespace longhaul::data
