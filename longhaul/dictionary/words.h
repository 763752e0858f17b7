#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// The dictionary of other systems' names for settings. Messages about mistyped keys and
// flags use the dictionary, and `longhaul import --flags` translates by it.

namespace longhaul::dictionary {

/// A system whose settings are known. `Common` are names that several trainers use, for
/// messages about mistyped keys and flags only. `Environment` are variables before a
/// command.
enum class OtherSystem {
  Common,
  NxdPipeline,
  NxdZero,
  Bert,
  Smp,
  Megatron,
  Torchtitan,
  Nanotron,
  Axolotl,
  Trl,
  LlamaFactory,
  Environment
};

/// What becomes of a value. `Copy`: the key takes the value as it is. `Rule`: the values
/// of the keys follow from this value together with others, or in another unit. `None`:
/// there is no key.
enum class Carry { Copy, Rule, None };

/// An entry of the dictionary: the names that a system has for one meaning.
struct OtherWord {
  /// Names with spaces between them, in lower case and with _ for -; "training.steps" if
  /// the system's files have sections. A name with * stands for all that match it.
  std::string_view names;
  Carry carry = Carry::None;
  /// The keys of longhaul with spaces between them; empty: none.
  std::string_view keys = {};
  /// Why the value is left out, if it is; in the entries of `Common` also how the keys
  /// follow from the value.
  std::string_view note = {};
};

/// Returns the system's name for messages: "run_llama_nxd.py of neuronx-distributed",
/// "nanotron".
std::string_view system_name(OtherSystem system);

/// Returns all entries that the dictionary has for a system.
std::span<const OtherWord> words_of(OtherSystem system);

/// Returns the entry of a name that is written as in OtherWord::names, or nullptr. An
/// entry with the exact name takes precedence over one with a * that matches.
const OtherWord* find_word(OtherSystem system, std::string_view name);

/// Returns a flag or key as OtherWord writes names: "batch_size" for "--Batch-Size".
std::string word_name(std::string_view flag);

/// What longhaul has for a name that it does not know itself.
struct Meaning {
  /// Copy: one of the keys is meant and takes the value as it is. Rule: the keys express
  /// the value in another form. None: there is no key.
  Carry carry = Carry::None;
  std::vector<std::string> keys;
  std::string note;  ///< how the keys follow from the value, or why there is none
};

/// Returns what a name means. It may be a setting of another system, given as a flag or
/// in the section `section` of a file, or the last part of a key of longhaul ("lr").
/// `name` is written as in OtherWord::names, `ours` are all keys of longhaul, and
/// `section` is empty for a flag. Returns nothing if no system has the name, or if
/// systems disagree.
std::optional<Meaning> meaning_of(std::string_view name, std::string_view section,
                                  std::span<const std::string> ours);

/// Returns what a name means, as meaning_of() does, also for a name that no entry has. A
/// mistyped name is taken for the nearest name that stands for a single key. If no name
/// is near, an entry with a * that matches is taken.
std::optional<Meaning> meaning_of_mistyped(std::string_view name,
                                           std::string_view section,
                                           std::span<const std::string> ours);

/// Returns the end of a message about an unknown name. For a Copy it is "; did you mean
/// optimizer.lr?". For a Rule it is "; here precision.compute says it: bf16, the default,
/// or fp32". For None it says that other trainers have the name, and why there is no key.
std::string say_meaning(const Meaning& meaning);

/// Returns the end of a message about a value that a key does not have: the value that is
/// meant ("; did you mean \"bf16\"?"), or what longhaul has instead. `key` is
/// "optimizer.kind". Returns an empty text for a value of no other system.
std::string other_value_hint(std::string_view key, std::string_view value);

/// Returns the end of a message about an unknown section of a file: the sections that
/// have such settings ("; here [schedule] has such settings"), or why there are none.
/// Returns an empty text if no other system has the section.
std::string other_section_hint(std::string_view section);

}  // namespace longhaul::dictionary
