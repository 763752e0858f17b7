#include "longhaul/dictionary/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "longhaul/base/text.h"
#include "longhaul/dictionary/tables.h"

namespace longhaul::dictionary {
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
    {OtherSystem::Trl, "TRL", tuning_words},
    {OtherSystem::LlamaFactory, "LLaMA-Factory", tuning_words},
    {OtherSystem::Environment, "the environment", environment_words}};
/// All systems except the environment.
constexpr auto kTrainers = std::span(kSystems).first(std::size(kSystems) - 1);

const SystemWords& words_entry(OtherSystem system) {
  return kSystems[static_cast<size_t>(system)];
}

std::vector<std::string> as_list(std::string_view keys) {
  std::vector<std::string> list = split_words(keys);
  if (list.size() > kMostKeys) list.resize(kMostKeys);
  return list;
}

Meaning meaning_of_word(const OtherWord& word) {
  Meaning meaning{word.carry, as_list(word.keys), std::string(word.note)};
  // If a name stands for several keys, none of them takes the value as it is.
  if (meaning.carry == Carry::Copy && meaning.keys.size() > 1)
    meaning.carry = Carry::Rule;
  if (meaning.carry == Carry::Rule && meaning.keys.empty()) {
    meaning.carry = Carry::None;
    if (meaning.note.empty()) meaning.note = "other settings say it";
  }
  return meaning;
}

bool same_keys(const Meaning& a, const Meaning& b) {
  return a.carry == b.carry && a.keys == b.keys;
}

/// Returns the meaning that all these entries have, or nothing if they disagree. An entry
/// without a key does not count against entries that have one.
std::optional<Meaning> agreed(const std::vector<const OtherWord*>& words) {
  std::optional<Meaning> found;
  for (const OtherWord* word : words) {
    const Meaning meaning = meaning_of_word(*word);
    if (!found || (found->keys.empty() && !meaning.keys.empty())) {
      found = meaning;
    } else if (!meaning.keys.empty() && !same_keys(*found, meaning)) {
      if (found->keys != meaning.keys) return std::nullopt;
      found->carry = Carry::Rule;
    }
  }
  return found;
}

/// Returns the entries of all trainers that have a name for which `fits` holds.
template <class Fits>
std::vector<const OtherWord*> words_that(Fits fits) {
  std::vector<const OtherWord*> found;
  for (const SystemWords& trainer : kTrainers) {
    for (const OtherWord& word : words_of(trainer.system)) {
      if (std::ranges::any_of(split_words(word.names), fits)) found.push_back(&word);
    }
  }
  return found;
}

std::optional<Meaning> meaning_among_ours(std::string_view name,
                                          std::span<const std::string> ours) {
  Meaning found{Carry::Copy, {}, ""};
  for (const std::string& key : ours) {
    if (key == name) return Meaning{Carry::Copy, {key}, ""};
    if (key.substr(key.find('.') + 1) == name) found.keys.push_back(key);
  }
  if (found.keys.empty()) return std::nullopt;
  return found;
}

std::optional<Meaning> meaning_elsewhere(std::string_view name) {
  if (auto meaning = agreed(words_that([&](const auto& one) { return one == name; }))) {
    return meaning;
  }
  // A name like "keep_latest_k" is also looked for in sections, as
  // "checkpoint.keep_latest_k". A name without _, such as "steps", is not, since it has
  // many meanings.
  if (name.find('_') != std::string_view::npos) {
    const std::string end = "." + std::string(name);
    const auto words = words_that([&](const auto& one) { return one.ends_with(end); });
    if (auto meaning = agreed(words)) return meaning;
  }
  return std::nullopt;
}

/// Returns the meaning of a name that matches a pattern: a name with * in a trainer's
/// entries.
std::optional<Meaning> meaning_by_pattern(std::string_view name) {
  for (const SystemWords& trainer : kTrainers) {
    if (const OtherWord* word = find_word(trainer.system, name)) {
      return meaning_of_word(*word);
    }
  }
  return std::nullopt;
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

std::optional<Meaning> meaning_of(std::string_view name, std::string_view section,
                                  std::span<const std::string> ours) {
  const OtherWord* word = find_word(OtherSystem::Common, name);
  std::optional<Meaning> common;
  if (word != nullptr) common = meaning_of_word(*word);
  const std::string full = section.empty() ? "" : fmt::format("{}.{}", section, name);
  const auto words = words_that([&](const auto& one) { return one == full; });
  if (auto meaning = agreed(words)) {
    // If the entry of Common names the same keys, it is taken, since its note says more.
    return common && common->keys == meaning->keys ? common : meaning;
  }
  if (common) return common;
  if (auto meaning = meaning_among_ours(name, ours)) return meaning;
  if (auto meaning = meaning_elsewhere(name)) return meaning;
  // The last part of a name with sections is looked up alone if it is specific enough,
  // like "rank_microbatch_size" of "train_module.rank_microbatch_size". The last part of
  // "profiler.steps" is not.
  const std::string_view last = name.substr(name.rfind('.') + 1);
  const bool tells = last.find('_') != std::string_view::npos || last == "lr";
  return tells && last != name ? meaning_of(last, "", ours) : std::nullopt;
}

std::optional<Meaning> meaning_of_mistyped(std::string_view name,
                                           std::string_view section,
                                           std::span<const std::string> ours) {
  if (auto meaning = meaning_of(name, section, ours)) return meaning;
  std::vector<std::string> names;
  for (const std::string& key : ours) {
    const bool whole = name.find('.') != std::string_view::npos;
    names.push_back(whole ? key : key.substr(key.find('.') + 1));
  }
  for (const OtherWord& word : words_of(OtherSystem::Common)) {
    if (word.carry == Carry::Copy) {
      std::ranges::move(split_words(word.names), std::back_inserter(names));
    }
  }
  const auto near = nearest_name(name, names);
  return near ? meaning_of(*near, "", ours) : meaning_by_pattern(name);
}

std::string say_meaning(const Meaning& meaning) {
  if (meaning.carry == Carry::None) {
    return fmt::format("; other trainers have it, and no key takes its place: {}",
                       meaning.note);
  }
  if (meaning.carry == Carry::Copy) {
    return fmt::format("; did you mean {}?", fmt::join(meaning.keys, " or "));
  }
  return fmt::format("; here {} {} it{}{}", fmt::join(meaning.keys, " and "),
                     meaning.keys.size() > 1 ? "say" : "says",
                     meaning.note.empty() ? "" : ": ", meaning.note);
}

}  // namespace longhaul::dictionary
