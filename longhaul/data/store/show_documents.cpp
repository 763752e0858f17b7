#include "longhaul/data/store/show_documents.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/text.h"
#include "longhaul/system/terminal.h"
#include "longhaul/tokenizer/unicode/unicode.h"

namespace longhaul::data {
namespace {

constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kPlain = "\x1b[0m";

/// Returns text that a terminal shows and does not obey, with its ends of lines.
std::string harmless(std::string_view text) {
  std::string shown;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    shown += system::printable(text.substr(begin, end - begin));
    if (end < text.size()) shown += '\n';
    begin = end + 1;
  }
  return shown;
}

/// Returns the name of a document: of a conversation, or of a side of a pair.
std::string title(const StoreInfo& info, int64_t document, size_t tokens,
                  size_t targets) {
  std::string name = fmt::format("document {}", grouped(document + 1));
  if (info.kind == "chats") name = fmt::format("conversation {}", grouped(document + 1));
  if (info.kind == "pairs") {
    name = fmt::format("pair {}, {}", grouped(document / 2 + 1),
                       document % 2 == 0 ? "chosen" : "rejected");
  }
  return fmt::format("--- {}: {}, of which {} are targets\n", name,
                     counted(static_cast<int64_t>(tokens), "token"), grouped(targets));
}

}  // namespace

ShownDocuments show_documents(const TokenStore& store,
                              const tokenizer::Tokenizer& tokenizer, int64_t documents,
                              bool colour) {
  ShownDocuments shown;
  shown.json = OrderedJson::array();
  int64_t begin = 0;
  for (int64_t d = 0; d < std::min(documents, store.info().documents); ++d) {
    const int64_t end = store.document_end(d);
    std::vector<int32_t> ids(static_cast<size_t>(end - begin));
    store.read(begin, ids);
    std::vector<uint8_t> is_target(ids.size(), 1);
    if (!store.all_targets()) store.read_targets(begin, is_target);
    begin = end;
    const auto targets = static_cast<size_t>(std::ranges::count(is_target, 1));
    shown.text += title(store.info(), d, ids.size(), targets);
    OrderedJson pieces = OrderedJson::array();
    for (size_t i = 0; i < ids.size();) {
      const bool target = is_target[i] != 0;
      std::string bytes;
      for (; i < ids.size() && (is_target[i] != 0) == target; ++i) {
        bytes += tokenizer.token_bytes(static_cast<tokenizer::TokenId>(ids[i]));
      }
      bytes = tokenizer::utf8_lossy(bytes);
      const std::string text = harmless(bytes);
      pieces.push_back({{"text", std::move(bytes)}, {"target", target}});
      if (!target) {
        shown.text += text;
      } else if (colour) {
        shown.text += fmt::format("{}{}{}", kGreen, text, kPlain);
      } else {
        shown.text += fmt::format("[[{}]]", text);
      }
    }
    if (!shown.text.ends_with('\n')) shown.text += '\n';
    shown.json.push_back(std::move(pieces));
  }
  return shown;
}

}  // namespace longhaul::data
