#include "longhaul/tokenizer/file/tokenizer_class.h"

#include <algorithm>
#include <utility>

#include "longhaul/families/family.h"
#include "longhaul/tokenizer/split/patterns.h"

namespace longhaul::tokenizer {
namespace {

/// A model_type that is no family of this program, and its class in transformers 5.23.
constexpr std::pair<std::string_view, std::string_view> kOfModel[] = {
    {"xlm-roberta", "XLMRobertaTokenizer"}, {"xmod", "XLMRobertaTokenizer"},
    {"camembert", "CamembertTokenizer"},    {"mbart", "MBartTokenizer"},
    {"mbart50", "MBart50Tokenizer"},        {"nllb", "NllbTokenizer"},
    {"nllb-moe", "NllbTokenizer"},          {"m2m_100", "M2M100Tokenizer"},
    {"plbart", "PLBartTokenizer"},          {"pegasus", "PegasusTokenizer"},
};

/// Returns the class that transformers registers for a model_type; empty: none.
std::string registered_class(std::string_view model_type) {
  if (const auto* family = families::find_family(model_type)) return family->tokenizer;
  for (const auto& [type, name] : kOfModel) {
    if (type == model_type) return std::string(name);
  }
  return {};
}

/// Names, without "Tokenizer", of classes that put tokens of their own before the pieces
/// of a SentencePiece model, or take the ids from another file.
constexpr std::string_view kMovesPieces =
    " Bartpho Camembert LayoutXLM M2M100 MBart MBart50 Nllb PLBart Pegasus SeamlessM4T "
    "Speech2Text XLMRoberta ";

/// Names, without "Tokenizer", of further classes of transformers 5.23 that build a
/// tokenizer anew or read other files.
constexpr std::string_view kOwnRules =
    " Albert Bart Barthez Bartpho BertGeneration BertJapanese Bertweet BigBird BioGpt "
    "Blenderbot BlenderbotSmall ByT5 CLIP CTRL Camembert Canine Clvp Cpm CpmAnt "
    "DPRQuestionEncoder Deberta DebertaV2 Dia Esm Esmc FSMT Flaubert Funnel "
    "GPTNeoXJapanese GPTSw3 Herbert LED Lasr LayoutLMv2 LayoutLMv3 LayoutXLM Luke Lxmert "
    "M2M100 MBart MBart50 MLuke MPNet Marian MarkupLM Mgpstr MobileBert Mvp MyT5 Nllb "
    "Nougat OpenAIGPT PLBart Pegasus Perceiver Phobert ProphetNet Qwen3_5 Rag Reformer "
    "RemBert RoCBert RoFormer SeamlessM4T Siglip Siglip2 Speech2Text SpeechT5 Splinter "
    "T5 Tapas Tipsv2 Udop VideoPrism Vits Wav2Vec2CTC Wav2Vec2PhonemeCTC Whisper XGLM "
    "XLM XLMRoberta XLNet ";

/// Returns whether a class is in a list of names without "Tokenizer".
bool is_among(std::string_view list, std::string_view name) {
  constexpr std::string_view kEnd = "Tokenizer";
  if (!name.ends_with(kEnd)) return false;
  name.remove_suffix(kEnd.size());
  return list.find(" " + std::string(name) + " ") != std::string_view::npos;
}

const Json& member(const Json& json, const char* key) {
  static const Json null;
  const auto found = json.is_object() ? json.find(key) : json.end();
  return json.is_object() && found != json.end() ? *found : null;
}

bool flag(const Json& json, const char* key, bool when_absent) {
  const Json& value = member(json, key);
  return value.is_boolean() ? value.get<bool>() : when_absent;
}

std::string text(const Json& json, const char* key, std::string when_absent = {}) {
  const Json& value = member(json, key);
  if (value.is_string()) return value.get<std::string>();
  const Json& content = member(value, "content");
  return content.is_string() ? content.get<std::string>() : std::move(when_absent);
}

/// Returns the parts with all defaults written out and sequences as their members, so
/// that equal parts compare equal.
void append_parts(const Json& json, Json& parts) {
  if (!json.is_object()) return;
  const std::string type = text(json, "type");
  if (type == "Sequence") {
    for (const char* key : {"normalizers", "pretokenizers"}) {
      for (const Json& part : member(json, key)) append_parts(part, parts);
    }
    return;
  }
  Json part = json;
  if (type == "ByteLevel") {
    part.erase("trim_offsets");
    part["add_prefix_space"] = flag(json, "add_prefix_space", true);
    part["use_regex"] = flag(json, "use_regex", true);
  } else if (type == "Metaspace") {
    const bool prefix = flag(json, "add_prefix_space", true);
    part = {{"type", type},
            {"replacement", text(json, "replacement", "▁")},
            {"prepend_scheme", text(json, "prepend_scheme", prefix ? "always" : "never")},
            {"split", flag(json, "split", true)}};
  } else if (type == "Digits") {
    part["individual_digits"] = flag(json, "individual_digits", false);
  }
  parts.push_back(std::move(part));
}

bool same_parts(const Json& a, const Json& b) {
  Json left = Json::array();
  Json right = Json::array();
  append_parts(a, left);
  append_parts(b, right);
  return left == right;
}

/// The parts that a class has instead of the file's.
struct Parts {
  const char* model = "BPE";
  Json normalizer = {};
  Json pre_tokenizer = {};
  Json flags = {{"byte_fallback", false}, {"ignore_merges", false}};  ///< of the model
};

Json byte_level(bool prefix_space, bool use_regex = true) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", prefix_space},
          {"use_regex", use_regex}};
}

Json metaspace(const char* scheme, bool split) {
  return {{"type", "Metaspace"},
          {"replacement", "▁"},
          {"prepend_scheme", scheme},
          {"split", split}};
}

Json sequence(const char* key, Json members) {
  return {{"type", "Sequence"}, {key, std::move(members)}};
}

Json nfc() { return {{"type", "NFC"}}; }

Json with_bytes() { return {{"byte_fallback", true}, {"ignore_merges", false}}; }

Parts llama(const Json& config) {
  const bool space = flag(config, "add_prefix_space", true);
  const bool legacy = flag(config, "legacy", false);
  return {.pre_tokenizer = metaspace(!space   ? "never"
                                     : legacy ? "always"
                                              : "first",
                                     false),
          .flags = with_bytes()};
}

Parts code_llama(const Json& config) {
  const bool space = flag(config, "add_prefix_space", true);
  return {.pre_tokenizer = metaspace(space ? "first" : "never", false),
          .flags = with_bytes()};
}

Parts gpt2(const Json& config) {
  return {.pre_tokenizer = byte_level(flag(config, "add_prefix_space", false))};
}

Parts gpt_neox(const Json& config) {
  Parts parts = gpt2(config);
  parts.normalizer = nfc();
  return parts;
}

Parts qwen2(const Json& config) {
  const std::string regex(split_regex(SplitPattern::Qwen2));
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", regex}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const bool space = flag(config, "add_prefix_space", false);
  return {.normalizer = nfc(),
          .pre_tokenizer = sequence("pretokenizers", {split, byte_level(space, false)})};
}

Parts cohere(const Json& config) {
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const bool space = flag(config, "add_prefix_space", false);
  return {.normalizer = nfc(),
          .pre_tokenizer = sequence("pretokenizers", {digits, byte_level(space)})};
}

Parts gemma(const Json&) {
  return {.normalizer = {{"type", "Replace"},
                         {"pattern", {{"String", " "}}},
                         {"content", "▁"}},
          .pre_tokenizer = {{"type", "Split"},
                            {"pattern", {{"String", " "}}},
                            {"behavior", "MergedWithPrevious"},
                            {"invert", false}},
          .flags = with_bytes()};
}

Parts bert(const Json& config) {
  const Json& accents = member(config, "strip_accents");
  return {.model = "WordPiece",
          .normalizer = {{"type", "BertNormalizer"},
                         {"clean_text", true},
                         {"handle_chinese_chars",
                          flag(config, "tokenize_chinese_chars", true)},
                         {"strip_accents", accents},
                         {"lowercase", flag(config, "do_lower_case", true)}},
          .pre_tokenizer = {{"type", "BertPreTokenizer"}},
          .flags = {{"unk_token", text(config, "unk_token", "[UNK]")},
                    {"continuing_subword_prefix", "##"},
                    {"max_input_chars_per_word", 100}}};
}

struct Class {
  const char* name;
  Parts (*parts)(const Json& config);
  /// Keys of tokenizer_config.json for tokens, with the tokens that stand for absent
  /// keys.
  std::vector<std::pair<const char*, const char*>> tokens;
  /// Keys, from `tokens`, of the tokens that the class puts around a text; absent if
  /// tokenizer.json decides. An empty list means that no token stands around a text.
  std::optional<std::vector<const char*>> around;
};

const std::vector<Class>& classes() {
  static const std::pair<const char*, const char*> end = {"eos_token", "<|endoftext|>"};
  static const std::vector<Class> all = {
      {"LlamaTokenizer",
       llama,
       {{"unk_token", "<unk>"}, {"bos_token", "<s>"}, {"eos_token", "</s>"}},
       {}},
      {"CodeLlamaTokenizer",
       code_llama,
       {{"unk_token", "<unk>"},
        {"bos_token", "<s>"},
        {"eos_token", "</s>"},
        {"prefix_token", "▁<PRE>"},
        {"middle_token", "▁<MID>"},
        {"suffix_token", "▁<SUF>"},
        {"eot_token", "▁<EOT>"},
        {"fill_token", "<FILL_ME>"}},
       {}},
      {"GPT2Tokenizer",
       gpt2,
       {{"unk_token", end.second}, {"bos_token", end.second}, end},
       {}},
      {"CodeGenTokenizer",
       gpt2,
       {{"unk_token", end.second}, {"bos_token", end.second}, end},
       std::vector<const char*>()},
      {"GPTNeoXTokenizer",
       gpt_neox,
       {{"unk_token", end.second},
        {"bos_token", end.second},
        end,
        {"pad_token", "<|padding|>"}},
       std::vector<const char*>()},
      {"Qwen2Tokenizer",
       qwen2,
       {{"unk_token", end.second}, end, {"pad_token", end.second}},
       {}},
      {"CohereTokenizer",
       cohere,
       {{"unk_token", "<UNK>"},
        {"bos_token", "<BOS_TOKEN>"},
        {"eos_token", "<|END_OF_TURN_TOKEN|>"},
        {"pad_token", "<PAD>"},
        {"cls_token", "<CLS>"},
        {"sep_token", "<SEP>"},
        {"mask_token", "<MASK_TOKEN>"}},
       {}},
      {"GemmaTokenizer",
       gemma,
       {{"unk_token", "<unk>"},
        {"bos_token", "<bos>"},
        {"eos_token", "<eos>"},
        {"pad_token", "<pad>"},
        {"mask_token", "<mask>"}},
       {}},
      {"RobertaTokenizer",
       gpt2,
       {{"bos_token", "<s>"},
        {"eos_token", "</s>"},
        {"sep_token", "</s>"},
        {"cls_token", "<s>"},
        {"unk_token", "<unk>"},
        {"pad_token", "<pad>"},
        {"mask_token", "<mask>"}},
       std::vector<const char*>{"cls_token", "sep_token"}},
      {"BertTokenizer",
       bert,
       {{"unk_token", "[UNK]"},
        {"sep_token", "[SEP]"},
        {"pad_token", "[PAD]"},
        {"cls_token", "[CLS]"},
        {"mask_token", "[MASK]"}},
       std::vector<const char*>{"cls_token", "sep_token"}},
  };
  return all;
}

const Class* find_class(std::string_view name) {
  const auto found = std::ranges::find(classes(), name, &Class::name);
  return found == classes().end() ? nullptr : &*found;
}

/// Returns whether there is a ByteLevel pre-tokenizer or decoder.
bool has_byte_level(const Json& root) {
  for (const char* key : {"pre_tokenizer", "decoder"}) {
    const Json& part = member(root, key);
    if (text(part, "type") == "ByteLevel") return true;
    for (const char* inside : {"pretokenizers", "decoders"}) {
      for (const Json& one : member(part, inside)) {
        if (text(one, "type") == "ByteLevel") return true;
      }
    }
  }
  return false;
}

}  // namespace

std::string auto_tokenizer_class(std::string named, std::string_view model_type,
                                 const Json& root) {
  if (named.ends_with("Fast")) named.resize(named.size() - 4);
  const std::string registered = registered_class(model_type);
  // The tokenizer_config.json files of models of this type are known to name wrong
  // classes.
  if (model_type == "qwen2") return registered;
  // The class registered for these types reads the file, even if the file names another
  // class. For Mistral the registered class belongs to Mistral's own library and takes
  // other files.
  if (registered == families::kReadsTokenizerFile) return {};
  if (named == "LlamaTokenizer" && has_byte_level(root)) return {};
  if (named.empty()) return registered;
  return find_class(named) != nullptr || is_class_with_own_rules(named) ? named : "";
}

std::optional<BuiltTokenizer> build_as_class(const std::string& name, const Json& config,
                                             const Json& root) {
  const Class* const found = find_class(name);
  if (found == nullptr) return std::nullopt;
  BuiltTokenizer built;
  const Parts parts = found->parts(config);
  const Json& model = member(root, "model");
  bool same_model = text(model, "type", "BPE") == parts.model;
  for (const auto& [key, value] : parts.flags.items()) {
    const Json& given = member(model, key.c_str());
    same_model =
        same_model && (given.is_null() && value == false ? true : given == value);
  }
  if (!same_model) built.other_parts.emplace_back("model");
  if (!same_parts(parts.normalizer, member(root, "normalizer"))) {
    built.other_parts.emplace_back("normalizer");
  }
  if (!same_parts(parts.pre_tokenizer, member(root, "pre_tokenizer"))) {
    built.other_parts.emplace_back("pre_tokenizer");
  }
  const auto token_of = [&](const char* key) {
    const auto* const entry = &*std::ranges::find(
        found->tokens, std::string_view(key),
        [](const auto& token) { return std::string_view(token.first); });
    return text(config, key, entry->second);
  };
  for (const auto& [key, token] : found->tokens) {
    if (!config.is_object() || !config.contains(key)) built.tokens.emplace_back(token);
  }
  if (found->around) {
    built.around.emplace();
    for (const char* key : *found->around) built.around->push_back(token_of(key));
  }
  return built;
}

bool moves_pieces(std::string_view name) { return is_among(kMovesPieces, name); }

std::optional<Ends> ends_of_class(std::string_view name, const Json& config) {
  if (name == "T5Tokenizer") return Ends{.bos = false, .eos = true};
  const bool code_llama = name == "CodeLlamaTokenizer";
  if (!code_llama && name != "LlamaTokenizer" && name != "GemmaTokenizer") {
    return std::nullopt;
  }
  return Ends{flag(config, "add_bos_token", code_llama),
              flag(config, "add_eos_token", false)};
}

bool is_class_with_own_rules(std::string_view name) { return is_among(kOwnRules, name); }

}  // namespace longhaul::tokenizer
