#include "longhaul/tokenizer/file/tokenizer_json.h"

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/json/lenient_json.h"
#include "longhaul/base/text.h"
#include "longhaul/tokenizer/file/byte_level_tokenizer.h"
#include "longhaul/tokenizer/file/pipeline_tokenizer.h"
#include "longhaul/tokenizer/file/tokenizer_json_parts.h"

namespace longhaul::tokenizer {
namespace {

std::string_view type_of(const Json& json) { return text_at(json, "type"); }

/// Returns the members of a sequence, or the value itself.
std::vector<const Json*> members(const Json& json, const char* key) {
  if (type_of(json) != "Sequence") return {&json};
  std::vector<const Json*> found;
  if (!json.contains(key) || !json[key].is_array()) return found;
  for (const Json& member : json[key]) found.push_back(&member);
  return found;
}

const Json& value_of(const Json& json, const char* key) {
  static const Json null;
  return json.is_object() && json.contains(key) ? json[key] : null;
}

bool is_known_split(const Json& json) {
  const Json& regex = value_of(value_of(json, "pattern"), "Regex");
  if (!regex.is_string() || !split_from_regex(regex.get<std::string>())) return false;
  const Json& behavior = value_of(json, "behavior");
  const bool invert = value_of(json, "invert") == Json(true);
  return behavior == (invert ? Json("Removed") : Json("Isolated")) ||
         behavior == Json("Isolated");
}

/// Returns whether a ByteLevelTokenizer can read the file: BPE over bytes, no normalizer
/// but NFC, known split patterns and then ByteLevel. Does not check for damage.
bool is_byte_level(const Json& root) {
  const Json& model = value_of(root, "model");
  const std::string_view type = type_of(model);
  if (type != "BPE" && model.is_object() && model.contains("type")) return false;
  if (value_of(model, "byte_fallback") == Json(true)) return false;
  const Json& normalizer = value_of(root, "normalizer");
  for (const Json* part : members(normalizer, "normalizers")) {
    if (!part->is_null() && type_of(*part) != "NFC") return false;
  }
  const Json& decoder = value_of(root, "decoder");
  if (!decoder.is_null() && type_of(decoder) != "ByteLevel") return false;
  const Json& pre_tokenizer = value_of(root, "pre_tokenizer");
  const auto steps = members(pre_tokenizer, "pretokenizers");
  if (steps.empty() || type_of(*steps.back()) != "ByteLevel") return false;
  return std::all_of(steps.begin(), steps.end() - 1, [](const Json* step) {
    return type_of(*step) == "Split" && is_known_split(*step);
  });
}

void read_step(const JsonNode& node, TokenizerSpec& spec) {
  if (node.type() == "ByteLevel") {
    spec.steps.push_back(
        {node.flag("add_prefix_space", true),
         node.flag("use_regex", true) ? SplitPattern::Gpt2 : SplitPattern::None});
  } else {
    // The known patterns match every character, so removing what lies between the
    // matches cuts as isolating them does.
    spec.steps.push_back(
        {false, *split_from_regex(node.member("pattern").member("Regex").text())});
  }
}

TokenizerSpec read_byte_level(const JsonNode& root) {
  TokenizerSpec spec;
  TokenIds ids = read_bpe(root.member("model"), spec.model);
  spec.added =
      read_added(root.member("added_tokens"), ids, static_cast<uint32_t>(ids.size()));
  spec.nfc = !root.member("normalizer").is_null() &&
             !members(root.member("normalizer").json(), "normalizers").empty();
  const JsonNode pre_tokenizer = root.member("pre_tokenizer");
  if (pre_tokenizer.type() == "Sequence") {
    for (const JsonNode& step : pre_tokenizer.member("pretokenizers").elements()) {
      read_step(step, spec);
    }
  } else {
    read_step(pre_tokenizer, spec);
  }
  read_post_processor(root.member("post_processor"), spec.affixes, ids);
  spec.byte_level_decoder = !root.member("decoder").is_null();
  return spec;
}

}  // namespace

Json read_tokenizer_root(std::string_view text, std::string_view name) {
  if (const auto bad = find_invalid_utf8(text)) {
    fail_input("tokenizer", "{}: not UTF-8 at byte {}", name, *bad);
  }
  Json json = parse_json(text, name, 16);
  if (!json.is_object()) {
    fail_input("tokenizer", "{}: not a tokenizer.json: expected an object", name);
  }
  return json;
}

std::unique_ptr<FileTokenizer> tokenizer_of(const Json& json, std::string_view name) {
  const JsonNode root(json, name, "");
  if (is_byte_level(json)) {
    return std::make_unique<ByteLevelTokenizer>(read_byte_level(root));
  }
  return std::make_unique<PipelineTokenizer>(read_pipeline(root));
}

}  // namespace longhaul::tokenizer
