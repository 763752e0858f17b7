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

struct SystemWords {
  OtherSystem system;
  std::string_view name;
  std::span<const OtherWord> (*words)();
};

/// The systems in the order of OtherSystem.
constexpr SystemWords kSystems[] = {
    {OtherSystem::Common, "other trainers", common_words},
    {OtherSystem::NxdPipeline, "run_llama_nxd.py of neuronx-distributed",
     nxd_pipeline_words},
    {OtherSystem::NxdZero,
     "the pretraining scripts without pipelines of neuronx-distributed", nxd_zero_words},
    {OtherSystem::Bert, "dp_bert_large_hf_pretrain_hdf5.py of aws-neuron-samples",
     bert_words},
    {OtherSystem::Smp, "the SageMaker Model Parallel v2 examples", smp_words},
    {OtherSystem::Megatron, "Megatron-LM", megatron_words},
    {OtherSystem::Torchtitan, "torchtitan", torchtitan_words},
    {OtherSystem::Nanotron, "nanotron", nanotron_words},
    {OtherSystem::Axolotl, "axolotl", axolotl_words},
    {OtherSystem::Environment, "the environment", environment_words}};
/// All systems except the environment.
constexpr auto kTrainers = std::span(kSystems).first(std::size(kSystems) - 1);

const SystemWords& words_entry(OtherSystem system) {
  return kSystems[static_cast<size_t>(system)];
}

/// Returns the entries that a name may mean. "steps" may also mean "training.steps".
std::vector<const OtherWord*> words_named(OtherSystem system, std::string_view name) {
  std::vector<const OtherWord*> found;
  for (const OtherWord& word : words_of(system)) {
    const bool meant = std::ranges::any_of(split_words(word.names), [&](const auto& one) {
      return one == name || one.substr(one.rfind('.') + 1) == name;
    });
    if (meant) found.push_back(&word);
  }
  return found;
}

void add_keys(std::string_view keys, std::vector<std::string>& found) {
  for (std::string& key : split_words(keys)) {
    if (std::ranges::find(found, key) == found.end()) found.push_back(std::move(key));
  }
}

}  // namespace

std::string_view system_name(OtherSystem system) { return words_entry(system).name; }

std::span<const OtherWord> words_of(OtherSystem system) {
  return words_entry(system).words();
}

const OtherWord* find_word(OtherSystem system, std::string_view name) {
  const OtherWord* matching = nullptr;
  for (const OtherWord& word : words_of(system)) {
    for (const std::string& one : split_words(word.names)) {
      if (one == name) return &word;
      const bool pattern = one.find('*') != std::string::npos;
      if (!matching && pattern && glob_match(one, name)) matching = &word;
    }
  }
  return matching;
}

std::string word_name(std::string_view flag) {
  std::string name(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())));
  for (char& c : name) {
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

std::vector<std::string> keys_of_word(std::string_view name) {
  std::vector<std::string> found;
  for (const SystemWords& trainer : kTrainers) {
    for (const OtherWord* word : words_named(trainer.system, name))
      add_keys(word->keys, found);
    if (trainer.system == OtherSystem::Common && !found.empty()) break;
  }
  if (found.size() > kMostKeys) found.resize(kMostKeys);
  return found;
}

std::optional<std::string_view> why_no_key(std::string_view name) {
  for (const SystemWords& trainer : kTrainers) {
    for (const OtherWord* word : words_named(trainer.system, name)) {
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
