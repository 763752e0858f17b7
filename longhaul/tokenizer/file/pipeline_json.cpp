#include "longhaul/tokenizer/file/tokenizer_json_parts.h"

#include "longhaul/base/hash.h"
#include "longhaul/tokenizer/pieces/piece_model.h"

namespace longhaul::tokenizer {
namespace {

TokenIds read_char_bpe(const JsonNode& node, Pipeline& pipeline) {
  BpeSpec read;
  TokenIds ids = read_bpe(node, read);
  CharBpeSpec spec;
  for (const Merge& merge : read.merges) {
    spec.merges.push_back({merge, static_cast<uint32_t>(spec.merges.size())});
  }
  spec.unknown = read.unknown;
  spec.fuse_unknown = read.fuse_unknown;
  spec.byte_fallback = node.flag("byte_fallback", false);
  spec.ignore_merges = read.ignore_merges;
  spec.vocab = pipeline.vocab = std::move(read.vocab);
  pipeline.model = std::make_unique<CharBpeModel>(spec);
  return ids;
}

TokenIds read_word_piece(const JsonNode& node, Pipeline& pipeline) {
  WordPieceSpec spec;
  TokenIds ids = read_vocab(node.member("vocab"), spec.vocab);
  const JsonNode unknown = node.member("unk_token");
  const auto id = read_unknown(unknown, ids);
  if (!id) unknown.fail("WordPiece needs an unknown token");
  spec.unknown = *id;
  const JsonNode prefix = node.member("continuing_subword_prefix");
  if (!prefix.is_null()) spec.prefix = prefix.text();
  spec.max_chars = node.number("max_input_chars_per_word", 100);
  pipeline.vocab = spec.vocab;
  pipeline.model = std::make_unique<WordPieceModel>(spec);
  return ids;
}

TokenIds read_unigram(const JsonNode& node, Pipeline& pipeline) {
  UnigramSpec spec;
  TokenIds ids;
  for (const JsonNode& entry : node.member("vocab").elements()) {
    const std::vector<JsonNode> pair = entry.elements();
    if (pair.size() != 2 || !pair[1].json().is_number()) {
      entry.fail("expected a token and its score");
    }
    if (spec.entries.size() >= kMaxTokens) entry.fail("more than {} tokens", kMaxTokens);
    ids.insert_or_assign(pair[0].text(), static_cast<uint32_t>(spec.entries.size()));
    spec.entries.push_back({pair[0].text(), pair[1].json().get<double>()});
    pipeline.vocab.emplace_back(pair[0].text());
  }
  const JsonNode unknown = node.member("unk_id");
  if (!unknown.is_null()) {
    if (unknown.id() >= spec.entries.size()) {
      unknown.fail("the token id {} is not below the number of tokens, {}", unknown.id(),
                   spec.entries.size());
    }
    spec.unknown = unknown.id();
  }
  spec.byte_fallback = node.flag("byte_fallback", false);
  pipeline.model = std::make_unique<UnigramModel>(spec);
  return ids;
}

TokenIds read_model(const JsonNode& node, Pipeline& pipeline) {
  if (node.is_null()) node.fail("missing");
  // Older files have no type. They are BPE.
  const JsonNode type = node.member("type");
  const std::string name = type.is_null() ? "BPE" : type.text();
  if (name == "BPE") return read_char_bpe(node, pipeline);
  if (name == "WordPiece") return read_word_piece(node, pipeline);
  if (name == "Unigram") return read_unigram(node, pipeline);
  type.fail("the model {} is not supported; BPE, WordPiece and Unigram are", name);
}

/// Returns a hash of everything that decides ids, with merges in one form.
std::string fingerprint_of(const JsonNode& root, const Pipeline& pipeline) {
  std::string text = "longhaul pipeline 1\n";
  const Json& model = root.json()["model"];
  for (auto member = model.begin(); member != model.end(); ++member) {
    if (member.key() == "merges") continue;
    text += member.key() + "=" + json_text(member.value()) + "\n";
  }
  if (model.contains("merges")) {
    for (const Json& merge : model["merges"]) {
      text += merge.is_string()
                  ? merge.get<std::string>()
                  : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
      text += "\n";
    }
  }
  for (const char* key : {"added_tokens", "normalizer", "pre_tokenizer"}) {
    text += fmt::format("{}={}\n", key, json_text(root.member(key).json()));
  }
  for (const auto* ids : {&pipeline.affixes.prefix, &pipeline.affixes.suffix}) {
    for (const uint32_t id : *ids) text += std::to_string(id) + ",";
    text += "\n";
  }
  return hash_hex(text);
}

}  // namespace

Pipeline read_pipeline(const JsonNode& root) {
  Pipeline pipeline;
  TokenIds ids = read_model(root.member("model"), pipeline);
  // The size of a Unigram list counts an entry twice if the list repeats it.
  const Json& vocab = root.json()["model"]["vocab"];
  pipeline.added =
      read_added(root.member("added_tokens"), ids, static_cast<uint32_t>(vocab.size()));
  read_normalizer(root.member("normalizer"), pipeline.normalizers);
  read_pre_tokenizer(root.member("pre_tokenizer"), pipeline.pre_tokenizers);
  read_post_processor(root.member("post_processor"), pipeline.affixes, ids);
  read_decoder(root.member("decoder"), pipeline.decoders);
  pipeline.has_decoder = !root.member("decoder").is_null();
  pipeline.fingerprint = fingerprint_of(root, pipeline);
  return pipeline;
}

}  // namespace longhaul::tokenizer
