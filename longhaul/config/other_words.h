#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// The dictionary of other systems' names for settings. Messages about mistyped keys and
// flags use the dictionary, and `longhaul import --flags` translates by it.

namespace longhaul::config {

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
  Environment
};

/// What becomes of a value. `Copy`: the key takes the value as it is. `Rule`: the values
/// of the keys follow from this value together with others, or in another unit. `None`:
/// there is no key.
enum class Carry { Copy, Rule, None };

/// An entry of the dictionary: the names that a system has for one meaning.
struct OtherWord {
  /// Names with spaces between them, in lower case and with _ for -; "training.steps"
  /// where the system's files have sections. A name with * stands for all that match it.
  std::string_view names;
  Carry carry = Carry::None;
  /// The keys of longhaul with spaces between them; empty: none.
  std::string_view keys = {};
  std::string_view note = {};  ///< why the value is left out, if it is
};

/// Returns the system's name for messages: "run_llama_nxd.py of neuronx-distributed",
/// "nanotron".
std::string_view system_name(OtherSystem system);

/// Returns all entries that the dictionary has for a system.
std::span<const OtherWord> words_of(OtherSystem system);

/// Returns the entry of a name that is written as in OtherWord::names, or nullptr. A full
/// name goes before a name with *.
const OtherWord* find_word(OtherSystem system, std::string_view name);

/// Returns a flag or key as OtherWord writes names: "batch_size" for "--Batch-Size".
std::string word_name(std::string_view flag);

/// Returns the keys that a name of other systems stands for: the keys of `Common` if it
/// has some for the name, else the keys of every system; at most three.
std::vector<std::string> keys_of_word(std::string_view name);

/// Returns the reason why a name has no key, if a system has that name without a key.
std::optional<std::string_view> why_no_key(std::string_view name);

/// Returns the end of a message about an unknown key, if another system has a setting of
/// that name: the keys that are meant ("; did you mean optimizer.lr?"), or why there is
/// no key. Returns an empty text otherwise.
std::string other_word_hint(std::string_view name);

}  // namespace longhaul::config
