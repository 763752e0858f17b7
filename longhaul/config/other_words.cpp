#include "longhaul/config/other_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "longhaul/base/text.h"
#include "longhaul/config/other_words_tables.h"

namespace longhaul::config {
namespace {

constexpr size_t kMostKeys = 3;

constexpr OtherSystem kSystems[] = {
    OtherSystem::Common,     OtherSystem::NxdPipeline, OtherSystem::NxdZero,
    OtherSystem::Bert,       OtherSystem::Smp,         OtherSystem::Megatron,
    OtherSystem::Torchtitan, OtherSystem::Nanotron,    OtherSystem::Axolotl};

/// Entries that a person may mean by a name alone: "steps" of "training.steps" too.
std::vector<const OtherWord*> words_named(OtherSystem system, std::string_view name) {
  std::vector<const OtherWord*> found;
  for (const OtherWord& word : words_of(system)) {
    const std::string_view last = word.name.substr(word.name.rfind('.') + 1);
    if (word.name == name || last == name) found.push_back(&word);
  }
  return found;
}

void add_keys(std::string_view keys, std::vector<std::string>& found) {
  for (std::string& key : split_keys(keys)) {
    if (std::ranges::find(found, key) == found.end()) found.push_back(std::move(key));
  }
}

}  // namespace

std::string_view system_name(OtherSystem system) {
  switch (system) {
    case OtherSystem::Common:
      return "other trainers";
    case OtherSystem::NxdPipeline:
      return "run_llama_nxd.py of neuronx-distributed";
    case OtherSystem::NxdZero:
      return "the pretraining scripts without pipelines of neuronx-distributed";
    case OtherSystem::Bert:
      return "dp_bert_large_hf_pretrain_hdf5.py of aws-neuron-samples";
    case OtherSystem::Smp:
      return "the SageMaker Model Parallel v2 examples";
    case OtherSystem::Megatron:
      return "Megatron-LM";
    case OtherSystem::Torchtitan:
      return "torchtitan";
    case OtherSystem::Nanotron:
      return "nanotron";
    case OtherSystem::Axolotl:
      return "axolotl";
    case OtherSystem::Environment:
      break;
  }
  return "the environment";
}

std::span<const OtherWord> words_of(OtherSystem system) {
  switch (system) {
    case OtherSystem::Common:
      return common_words();
    case OtherSystem::NxdPipeline:
      return nxd_pipeline_words();
    case OtherSystem::NxdZero:
      return nxd_zero_words();
    case OtherSystem::Bert:
      return bert_words();
    case OtherSystem::Smp:
      return smp_words();
    case OtherSystem::Megatron:
      return megatron_words();
    case OtherSystem::Torchtitan:
      return torchtitan_words();
    case OtherSystem::Nanotron:
      return nanotron_words();
    case OtherSystem::Axolotl:
      return axolotl_words();
    case OtherSystem::Environment:
      break;
  }
  return environment_words();
}

const OtherWord* find_word(OtherSystem system, std::string_view name) {
  const std::span<const OtherWord> words = words_of(system);
  const auto exact = std::ranges::find(words, name, &OtherWord::name);
  if (exact != words.end()) return &*exact;
  // "float8.*" stands for a section, "neuron_*" for a family of variables.
  for (const OtherWord& word : words) {
    if (word.name.find('*') != std::string_view::npos && glob_match(word.name, name)) {
      return &word;
    }
  }
  return nullptr;
}

std::string word_name(std::string_view flag) {
  std::string name(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())));
  for (char& c : name) {
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

std::vector<std::string> split_keys(std::string_view keys) {
  std::vector<std::string> out;
  while (!keys.empty()) {
    const size_t end = std::min(keys.find(' '), keys.size());
    out.emplace_back(keys.substr(0, end));
    keys.remove_prefix(std::min(end + 1, keys.size()));
  }
  return out;
}

std::vector<std::string> keys_of_word(std::string_view name) {
  std::vector<std::string> found;
  for (const OtherSystem system : kSystems) {
    for (const OtherWord* word : words_named(system, name)) add_keys(word->keys, found);
    if (system == OtherSystem::Common && !found.empty()) break;
  }
  if (found.size() > kMostKeys) found.resize(kMostKeys);
  return found;
}

std::optional<std::string_view> why_no_key(std::string_view name) {
  for (const OtherSystem system : kSystems) {
    for (const OtherWord* word : words_named(system, name)) {
      if (word->carry == Carry::None) return word->note;
    }
  }
  return std::nullopt;
}

std::string other_word_hint(std::string_view name) {
  const std::vector<std::string> keys = keys_of_word(word_name(name));
  if (!keys.empty()) return fmt::format("; did you mean {}?", fmt::join(keys, " or "));
  if (const auto why = why_no_key(word_name(name))) {
    return fmt::format("; other trainers have it, and no key takes its place: {}", *why);
  }
  return "";
}

}  // namespace longhaul::config
