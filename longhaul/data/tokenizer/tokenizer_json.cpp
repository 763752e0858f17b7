#include "longhaul/data/tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"

namespace longhaul::data {
namespace {

/// A value of the file with its place in it, for messages.
class Node {
 public:
  Node(const Json& json, std::string_view file, std::string path)
      : json_(&json), file_(file), path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& problem) const {
    throw InputError("tokenizer", fmt::format("{}: {}: {}", file_, path_, problem));
  }
  const Json& json() const { return *json_; }
  bool is_null() const { return json_->is_null(); }

  /// The member, or a null node.
  Node member(const char* key) const {
    static const Json null;
    if (!json_->is_object()) fail("expected an object");
    const auto found = json_->find(key);
    return {found == json_->end() ? null : *found, file_,
            path_.empty() ? key : path_ + "." + key};
  }
  std::vector<Node> elements() const {
    if (!json_->is_array()) fail("expected a list");
    std::vector<Node> nodes;
    nodes.reserve(json_->size());
    for (const Json& element : *json_) {
      nodes.emplace_back(element, file_, fmt::format("{}[{}]", path_, nodes.size()));
    }
    return nodes;
  }
  const std::string& text() const {
    if (!json_->is_string()) fail("expected a string");
    return json_->get_ref<const std::string&>();
  }
  bool flag(const char* key, bool when_absent) const {
    const Node node = member(key);
    if (node.is_null()) return when_absent;
    if (!node.json().is_boolean()) node.fail("expected true or false");
    return node.json().get<bool>();
  }
  uint32_t id() const {
    if (!json_->is_number_unsigned()) fail("expected a token id");
    const auto value = json_->get<uint64_t>();
    if (value >= kMaxTokens) {
      fail(
          fmt::format("the token id {} is not below the limit of {}", value, kMaxTokens));
    }
    return static_cast<uint32_t>(value);
  }
  std::string type() const { return member("type").text(); }

 private:
  const Json* json_;
  std::string_view file_;
  std::string path_;
};

using TokenIds = std::unordered_map<std::string_view, uint32_t>;

/// Absent, null, or the given neutral text.
void require_neutral(const Node& node, const char* why) {
  if (node.is_null() || (node.json().is_string() && node.text().empty())) return;
  if (node.json().is_number() && node.json().get<double>() == 0.0) return;
  node.fail(fmt::format("{} is not supported", why));
}

TokenIds read_vocab(const Node& node, BpeSpec& spec) {
  if (!node.json().is_object()) node.fail("expected an object of tokens and ids");
  uint32_t largest = 0;
  for (auto entry = node.json().begin(); entry != node.json().end(); ++entry) {
    const Json& id = entry.value();
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxTokens) {
      node.fail(fmt::format("\"{}\" has the id {}; expected a whole number below {}",
                            entry.key(), id.dump(), kMaxTokens));
    }
    largest = std::max(largest, id.get<uint32_t>());
  }
  if (!node.json().empty()) spec.vocab.resize(size_t{largest} + 1);
  TokenIds ids;
  ids.reserve(node.json().size());
  for (auto entry = node.json().begin(); entry != node.json().end(); ++entry) {
    const auto id = entry.value().get<uint32_t>();
    if (spec.vocab[id]) {
      node.fail(fmt::format("\"{}\" and \"{}\" have the same id {}", *spec.vocab[id],
                            entry.key(), id));
    }
    spec.vocab[id] = entry.key();
    ids.emplace(entry.key(), id);
  }
  return ids;
}

std::pair<std::string, std::string> merge_parts(const Node& node) {
  if (node.json().is_string()) {
    const std::string& text = node.text();
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      node.fail(fmt::format("\"{}\" is not two tokens with one space between", text));
    }
    return {text.substr(0, space), text.substr(space + 1)};
  }
  const std::vector<Node> pair = node.elements();
  if (pair.size() != 2) node.fail(fmt::format("{} tokens, not two", pair.size()));
  return {pair[0].text(), pair[1].text()};
}

void read_merges(const Node& node, const TokenIds& ids, BpeSpec& spec) {
  const auto id_of = [&](const Node& merge, const std::string& token, const char* role) {
    const auto found = ids.find(token);
    if (found == ids.end()) {
      merge.fail(fmt::format("the {} \"{}\" is not in the vocabulary", role, token));
    }
    return found->second;
  };
  for (const Node& merge : node.elements()) {
    const auto [left, right] = merge_parts(merge);
    spec.merges.push_back({id_of(merge, left, "left part"),
                           id_of(merge, right, "right part"),
                           id_of(merge, left + right, "result")});
  }
}

TokenIds read_model(const Node& node, BpeSpec& spec) {
  if (node.is_null()) node.fail("missing");
  // Files from before the type was written say nothing; their merges say BPE.
  const Node type = node.member("type");
  if (!type.is_null() && type.text() != "BPE") {
    type.fail(
        fmt::format("the model {} is not supported; byte-level BPE is", type.text()));
  }
  require_neutral(node.member("dropout"), "merge dropout");
  require_neutral(node.member("continuing_subword_prefix"), "a subword prefix");
  require_neutral(node.member("end_of_word_suffix"), "a word suffix");
  if (node.flag("byte_fallback", false)) {
    node.member("byte_fallback")
        .fail(
            "a SentencePiece-style vocabulary with byte fallback is not supported; "
            "byte-level BPE is");
  }
  TokenIds ids = read_vocab(node.member("vocab"), spec);
  read_merges(node.member("merges"), ids, spec);
  spec.ignore_merges = node.flag("ignore_merges", false);
  spec.fuse_unknown = node.flag("fuse_unk", false);
  const Node unknown = node.member("unk_token");
  if (!unknown.is_null() && !unknown.text().empty()) {
    const auto found = ids.find(unknown.text());
    if (found == ids.end()) {
      unknown.fail(fmt::format("\"{}\" is not in the vocabulary", unknown.text()));
    }
    spec.unknown = found->second;
  }
  return ids;
}

/// Hugging Face ignores the ids of this list: a token has the id that the vocabulary
/// gives it, else the next free one. A file that says otherwise would read differently
/// there.
void read_added(const Node& node, TokenizerSpec& spec, TokenIds& ids) {
  if (node.is_null()) return;
  const auto vocab_count = static_cast<uint32_t>(ids.size());
  std::optional<uint32_t> largest;
  std::set<std::string_view> seen;
  for (const Node& entry : node.elements()) {
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
      entry.fail(fmt::format("the token \"{}\" stands twice", token.content));
    }
    const auto known = ids.find(entry.member("content").text());
    const uint32_t next = largest ? std::max(*largest + 1, vocab_count) : vocab_count;
    const uint32_t expected = known != ids.end() ? known->second : next;
    if (token.id != expected) {
      entry.fail(
          fmt::format("\"{}\" has the id {}, but Hugging Face would give it {}; "
                      "correct the file",
                      token.content, token.id, expected));
    }
    largest = std::max(largest.value_or(0), token.id);
    ids.emplace(entry.member("content").text(), token.id);
    spec.added.push_back(std::move(token));
  }
}

void read_normalizer(const Node& node, TokenizerSpec& spec, int depth = 0) {
  if (node.is_null()) return;
  const std::string type = node.type();
  if (type == "NFC") {
    spec.nfc = true;
  } else if (type == "Sequence" && depth == 0) {
    for (const Node& part : node.member("normalizers").elements()) {
      read_normalizer(part, spec, depth + 1);
    }
  } else {
    node.fail(fmt::format("the normalizer {} is not supported; NFC is", type));
  }
}

SplitPattern read_split(const Node& node) {
  const Node pattern = node.member("pattern");
  const Node regex = pattern.member("Regex");
  if (regex.is_null()) pattern.fail("only a Regex pattern is supported");
  const std::string& behavior = node.member("behavior").text();
  const bool invert = node.flag("invert", false);
  // The known patterns match every character, so both forms cut the same way.
  const bool isolates = (behavior == "Isolated") || (behavior == "Removed" && invert);
  if (!isolates) {
    node.fail(fmt::format("the behavior {} (invert {}) is not supported; Isolated is",
                          behavior, invert));
  }
  const auto known = split_from_regex(regex.text());
  if (!known) {
    regex.fail(fmt::format("the split pattern {} is not supported; those of {} are",
                           regex.text(), known_splits()));
  }
  return *known;
}

/// True when a ByteLevel was among them; it must be the last.
bool read_pre_tokenizer(const Node& node, TokenizerSpec& spec, int depth = 0) {
  if (node.is_null()) node.fail("missing; a byte-level tokenizer has one");
  const std::string type = node.type();
  if (type == "ByteLevel") {
    spec.steps.push_back(
        {node.flag("add_prefix_space", true),
         node.flag("use_regex", true) ? SplitPattern::Gpt2 : SplitPattern::None});
    return true;
  }
  if (type == "Split") {
    spec.steps.push_back({false, read_split(node)});
    return false;
  }
  if (type != "Sequence" || depth > 0) {
    node.fail(
        fmt::format("the pre-tokenizer {} is not supported; ByteLevel, Split and one "
                    "Sequence of them are",
                    type));
  }
  bool bytes = false;
  for (const Node& part : node.member("pretokenizers").elements()) {
    if (bytes) part.fail("nothing may follow ByteLevel");
    bytes = read_pre_tokenizer(part, spec, depth + 1);
  }
  return bytes;
}

void check_id(const Node& node, uint32_t id, const TokenIds& ids) {
  const bool known = std::any_of(ids.begin(), ids.end(),
                                 [&](const auto& entry) { return entry.second == id; });
  if (!known) node.fail(fmt::format("no token has the id {}", id));
}

void read_template(const Node& node, TokenizerSpec& spec, const TokenIds& ids) {
  std::vector<uint32_t> before;
  std::vector<uint32_t> after;
  bool text_seen = false;
  for (const Node& piece : node.member("single").elements()) {
    const Node sequence = piece.member("Sequence");
    if (!sequence.is_null()) {
      if (text_seen || sequence.member("id").text() != "A") {
        sequence.fail("a template for one text has the sequence A once");
      }
      text_seen = true;
      continue;
    }
    const Node special = piece.member("SpecialToken");
    if (special.is_null()) piece.fail("expected a Sequence or a SpecialToken");
    const Node entry =
        node.member("special_tokens").member(special.member("id").text().c_str());
    if (entry.is_null()) {
      special.fail(
          fmt::format("\"{}\" is not among special_tokens", special.member("id").text()));
    }
    for (const Node& id : entry.member("ids").elements()) {
      check_id(id, id.id(), ids);
      (text_seen ? after : before).push_back(id.id());
    }
  }
  if (!text_seen) node.member("single").fail("the template leaves the text out");
  spec.prefix.insert(spec.prefix.begin(), before.begin(), before.end());
  spec.suffix.insert(spec.suffix.end(), after.begin(), after.end());
}

void read_post_processor(const Node& node, TokenizerSpec& spec, const TokenIds& ids,
                         int depth = 0) {
  if (node.is_null()) return;
  const std::string type = node.type();
  if (type == "ByteLevel") return;  // changes offsets, never ids
  if (type == "TemplateProcessing") {
    read_template(node, spec, ids);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    for (const char* end : {"cls", "sep"}) {
      const std::vector<Node> pair = node.member(end).elements();
      if (pair.size() != 2) node.member(end).fail("expected a token and its id");
      check_id(pair[1], pair[1].id(), ids);
    }
    spec.prefix.insert(spec.prefix.begin(), node.member("cls").elements()[1].id());
    spec.suffix.push_back(node.member("sep").elements()[1].id());
  } else if (type == "Sequence" && depth == 0) {
    for (const Node& part : node.member("processors").elements()) {
      read_post_processor(part, spec, ids, depth + 1);
    }
  } else {
    node.fail(
        fmt::format("the post-processor {} is not supported; TemplateProcessing, "
                    "ByteLevel and one Sequence of them are",
                    type));
  }
}

void read_decoder(const Node& node, TokenizerSpec& spec) {
  if (node.is_null()) return;
  const std::string type = node.type();
  if (type != "ByteLevel") {
    node.fail(fmt::format("the decoder {} is not supported; ByteLevel is", type));
  }
  spec.byte_level_decoder = true;
}

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text, std::string_view name) {
  if (const auto bad = find_invalid_utf8(text)) {
    throw InputError("tokenizer", fmt::format("{}: not UTF-8 at byte {}", name, *bad));
  }
  const Json json = parse_json(text, name, 16);
  const Node root(json, name, "");
  if (!json.is_object()) {
    throw InputError("tokenizer",
                     fmt::format("{}: not a tokenizer.json: expected an object", name));
  }
  TokenizerSpec spec;
  TokenIds ids = read_model(root.member("model"), spec.model);
  read_added(root.member("added_tokens"), spec, ids);
  read_normalizer(root.member("normalizer"), spec);
  const Node pre_tokenizer = root.member("pre_tokenizer");
  if (!read_pre_tokenizer(pre_tokenizer, spec)) {
    pre_tokenizer.fail("no ByteLevel in it; only byte-level BPE is supported");
  }
  read_post_processor(root.member("post_processor"), spec, ids);
  read_decoder(root.member("decoder"), spec);
  return spec;
}

}  // namespace longhaul::data
