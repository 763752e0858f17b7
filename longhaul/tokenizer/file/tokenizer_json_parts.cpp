#include "longhaul/tokenizer/file/tokenizer_json_parts.h"

#include <algorithm>
#include <set>

namespace longhaul::tokenizer {

TokenIds read_vocab(const JsonNode& node, Vocabulary& vocab) {
  if (!node.json().is_object()) node.fail("expected an object of tokens and ids");
  uint32_t largest = 0;
  for (auto entry = node.json().begin(); entry != node.json().end(); ++entry) {
    const Json& id = entry.value();
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxTokens) {
      node.fail("\"{}\" has the id {}; expected a whole number below {}", entry.key(),
                json_text(id), kMaxTokens);
    }
    largest = std::max(largest, id.get<uint32_t>());
  }
  // One entry with a huge id must not cost the memory of all ids below it.
  if (largest > 4 * node.json().size() + (uint32_t{1} << 20)) {
    node.fail("{} tokens have ids up to {}, so too many ids have no token",
              node.json().size(), largest);
  }
  if (!node.json().empty()) vocab.resize(size_t{largest} + 1);
  TokenIds ids;
  ids.reserve(node.json().size());
  for (auto entry = node.json().begin(); entry != node.json().end(); ++entry) {
    const auto id = entry.value().get<uint32_t>();
    if (vocab[id]) {
      node.fail("\"{}\" and \"{}\" have the same id {}", *vocab[id], entry.key(), id);
    }
    vocab[id] = entry.key();
    ids.emplace(entry.key(), id);
  }
  return ids;
}

namespace {

/// Accepts only a value that is absent, null, an empty text or zero. For any other value
/// the error says that `why` is not supported.
void require_neutral(const JsonNode& node, const char* why) {
  if (node.is_null() || (node.json().is_string() && node.text().empty())) return;
  if (node.json().is_number() && node.json().get<double>() == 0.0) return;
  node.fail("{} is not supported", why);
}

std::pair<std::string, std::string> merge_parts(const JsonNode& node) {
  if (node.json().is_string()) {
    const std::string& text = node.text();
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      node.fail("\"{}\" is not two tokens with one space between", text);
    }
    return {text.substr(0, space), text.substr(space + 1)};
  }
  const std::vector<JsonNode> pair = node.elements();
  if (pair.size() != 2) node.fail("{} tokens, not two", pair.size());
  return {pair[0].text(), pair[1].text()};
}

/// Reads merges, which are strings of two tokens or pairs.
void read_merges(const JsonNode& node, const TokenIds& ids, std::vector<Merge>& merges) {
  const auto id_of = [&](const JsonNode& merge, const std::string& token,
                         const char* role) {
    const auto found = ids.find(token);
    if (found == ids.end()) {
      merge.fail("the {} \"{}\" is not in the vocabulary", role, token);
    }
    return found->second;
  };
  for (const JsonNode& merge : node.elements()) {
    const auto [left, right] = merge_parts(merge);
    merges.push_back({id_of(merge, left, "left part"), id_of(merge, right, "right part"),
                      id_of(merge, left + right, "result")});
  }
}

}  // namespace

std::optional<uint32_t> read_unknown(const JsonNode& node, const TokenIds& ids) {
  if (node.is_null() || node.text().empty()) return std::nullopt;
  const auto found = ids.find(node.text());
  if (found == ids.end()) node.fail("\"{}\" is not in the vocabulary", node.text());
  return found->second;
}

TokenIds read_bpe(const JsonNode& node, BpeSpec& spec) {
  require_neutral(node.member("dropout"), "merge dropout");
  require_neutral(node.member("continuing_subword_prefix"), "a subword prefix");
  require_neutral(node.member("end_of_word_suffix"), "a word suffix");
  TokenIds ids = read_vocab(node.member("vocab"), spec.vocab);
  read_merges(node.member("merges"), ids, spec.merges);
  spec.ignore_merges = node.flag("ignore_merges", false);
  spec.fuse_unknown = node.flag("fuse_unk", false);
  spec.unknown = read_unknown(node.member("unk_token"), ids);
  return ids;
}

std::vector<AddedToken> read_added(const JsonNode& node, TokenIds& ids,
                                   uint32_t vocab_count) {
  std::vector<AddedToken> added;
  if (node.is_null()) return added;
  std::optional<uint32_t> largest;
  std::set<std::string_view> seen;
  for (const JsonNode& entry : node.elements()) {
    AddedToken token;
    token.content = entry.member("content").text();
    token.id = entry.member("id").id();
    token.special = entry.flag("special", false);
    token.single_word = entry.flag("single_word", false);
    token.lstrip = entry.flag("lstrip", false);
    token.rstrip = entry.flag("rstrip", false);
    token.normalized = entry.flag("normalized", !token.special);
    if (token.content.empty()) entry.fail("a token without text");
    if (!seen.insert(entry.member("content").text()).second) {
      entry.fail("the token \"{}\" stands twice", token.content);
    }
    const auto known = ids.find(entry.member("content").text());
    const uint32_t next = largest ? std::max(*largest + 1, vocab_count) : vocab_count;
    const uint32_t expected = known != ids.end() ? known->second : next;
    if (token.id != expected) {
      entry.fail(
          "\"{}\" has the id {}, but Hugging Face would give it {}; correct the file",
          token.content, token.id, expected);
    }
    largest = std::max(largest.value_or(0), token.id);
    ids.emplace(entry.member("content").text(), token.id);
    added.push_back(std::move(token));
  }
  return added;
}

namespace {

void check_id(const JsonNode& node, uint32_t id, const TokenIds& ids) {
  const bool known = std::any_of(ids.begin(), ids.end(),
                                 [&](const auto& entry) { return entry.second == id; });
  if (!known) node.fail("no token has the id {}", id);
}

void read_template(const JsonNode& node, Affixes& affixes, const TokenIds& ids) {
  std::vector<uint32_t> before;
  std::vector<uint32_t> after;
  bool text_seen = false;
  for (const JsonNode& piece : node.member("single").elements()) {
    const JsonNode sequence = piece.member("Sequence");
    if (!sequence.is_null()) {
      if (text_seen || sequence.member("id").text() != "A") {
        sequence.fail("a template for one text must have the sequence A exactly once");
      }
      text_seen = true;
      continue;
    }
    const JsonNode special = piece.member("SpecialToken");
    if (special.is_null()) piece.fail("expected a Sequence or a SpecialToken");
    const JsonNode entry =
        node.member("special_tokens").member(special.member("id").text().c_str());
    if (entry.is_null()) {
      special.fail("\"{}\" is not among special_tokens", special.member("id").text());
    }
    for (const JsonNode& id : entry.member("ids").elements()) {
      check_id(id, id.id(), ids);
      (text_seen ? after : before).push_back(id.id());
    }
  }
  if (!text_seen) node.member("single").fail("the template leaves the text out");
  affixes.prefix.insert(affixes.prefix.begin(), before.begin(), before.end());
  affixes.suffix.insert(affixes.suffix.end(), after.begin(), after.end());
}

}  // namespace

void read_post_processor(const JsonNode& node, Affixes& affixes, const TokenIds& ids,
                         int depth) {
  if (node.is_null()) return;
  const std::string type = node.type();
  if (type == "ByteLevel") return;  // changes offsets, never ids
  if (type == "TemplateProcessing") {
    read_template(node, affixes, ids);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    for (const char* end : {"cls", "sep"}) {
      const std::vector<JsonNode> pair = node.member(end).elements();
      if (pair.size() != 2) node.member(end).fail("expected a token and its id");
      check_id(pair[1], pair[1].id(), ids);
    }
    affixes.prefix.insert(affixes.prefix.begin(), node.member("cls").elements()[1].id());
    affixes.suffix.push_back(node.member("sep").elements()[1].id());
  } else if (type == "Sequence" && depth == 0) {
    for (const JsonNode& part : node.member("processors").elements()) {
      read_post_processor(part, affixes, ids, depth + 1);
    }
  } else {
    node.fail(
        "the post-processor {} is not supported; TemplateProcessing, BertProcessing, "
        "RobertaProcessing, ByteLevel and one Sequence of them are",
        type);
  }
}

}  // namespace longhaul::tokenizer
