#include "longhaul/base/json.h"
#include "longhaul/tokenizer/learn/learn_tokenizer.h"

namespace longhaul::tokenizer {
namespace {

OrderedJson byte_level_part(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

OrderedJson pre_tokenizer(SplitPattern split) {
  if (split == SplitPattern::Gpt2) return byte_level_part(true);
  const OrderedJson cut = {{"type", "Split"},
                           {"pattern", {{"Regex", split_regex(split)}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  return {{"type", "Sequence"},
          {"pretokenizers", OrderedJson::array({cut, byte_level_part(false)})}};
}

OrderedJson text_place(const char* name, int type) {
  return {{"Sequence", {{"id", name}, {"type_id", type}}}};
}

OrderedJson post_processor(const TrainedBpe& trained, const TrainOptions& options) {
  if (!options.prepend_bos) return byte_level_part(true);
  const std::string& bos = options.bos_token;
  uint32_t id = 0;
  while (trained.vocab[id] != bos) ++id;
  const auto token = [&](int type) -> OrderedJson {
    return {{"SpecialToken", {{"id", bos}, {"type_id", type}}}};
  };
  const OrderedJson ids = OrderedJson::array({id});
  const OrderedJson tokens = OrderedJson::array({bos});
  const OrderedJson rule = {
      {"type", "TemplateProcessing"},
      {"single", OrderedJson::array({token(0), text_place("A", 0)})},
      {"pair",
       OrderedJson::array({token(0), text_place("A", 0), token(1), text_place("B", 1)})},
      {"special_tokens", {{bos, {{"id", bos}, {"ids", ids}, {"tokens", tokens}}}}}};
  return {{"type", "Sequence"},
          {"processors", OrderedJson::array({byte_level_part(true), rule})}};
}

OrderedJson model(const TrainedBpe& trained) {
  OrderedJson vocab = OrderedJson::object();
  // Uses the vector behind an ordered object, since inserting by key would search all of
  // it.
  auto& entries = vocab.get_ref<OrderedJson::object_t&>();
  entries.reserve(trained.vocab.size());
  for (size_t id = 0; id < trained.vocab.size(); ++id) {
    entries.push_back({trained.vocab[id], OrderedJson(id)});
  }
  OrderedJson merges = OrderedJson::array();
  for (const TrainedBpe::Merge& merge : trained.merges) {
    merges.push_back(
        OrderedJson::array({trained.vocab[merge.left], trained.vocab[merge.right]}));
  }
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

}  // namespace

std::string tokenizer_json_text(const TrainedBpe& trained, const TrainOptions& options) {
  OrderedJson added = OrderedJson::array();
  for (size_t id = 0; id < options.special_tokens.size(); ++id) {
    added.push_back({{"id", id},
                     {"content", options.special_tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const OrderedJson json = {{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens", std::move(added)},
                            {"normalizer", nullptr},
                            {"pre_tokenizer", pre_tokenizer(options.split)},
                            {"post_processor", post_processor(trained, options)},
                            {"decoder", byte_level_part(true)},
                            {"model", model(trained)}};
  return json_text(json, 1) + "\n";
}

std::string tokenizer_config_text(const TrainOptions& options) {
  OrderedJson json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                      {"clean_up_tokenization_spaces", false}};
  if (!options.bos_token.empty()) json["bos_token"] = options.bos_token;
  if (!options.eos_token.empty()) json["eos_token"] = options.eos_token;
  return json_text(json, 2) + "\n";
}

void write_tokenizer(const fs::path& dir, const TrainedBpe& trained,
                     const TrainOptions& options) {
  fs::create_directories(dir);
  write_text_atomic(dir / "tokenizer.json", tokenizer_json_text(trained, options));
  write_text_atomic(dir / "tokenizer_config.json", tokenizer_config_text(options));
}

}  // namespace longhaul::tokenizer
