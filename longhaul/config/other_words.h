#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// The dictionary of what other systems call a setting. Messages about mistyped keys and
// flags use it, and `longhaul import --flags` translates by it.

namespace longhaul::config {

/// A system whose settings are known. `Common`: names that several trainers use, for
/// messages about mistyped keys and flags alone. `Environment`: variables that stand
/// before a command.
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

/// What becomes of a value. `Copy`: the key takes the value as it is. `Rule`: the keys'
/// values follow from it together with other values, or in another unit. `None`: there is
/// no key.
enum class Carry { Copy, Rule, None };

/// One name in the dictionary.
struct OtherWord {
  /// In lower case, with _ for -; "training.steps" where the system's files have
  /// sections.
  std::string_view name;
  Carry carry = Carry::None;
  /// The keys of longhaul, "batch.global_size batch.micro_size"; empty: none.
  std::string_view keys = {};
  std::string_view note = {};  ///< why the value is left out, where it is
};

/// The system's name in messages: "run_llama_nxd.py of neuronx-distributed", "nanotron".
std::string_view system_name(OtherSystem system);

/// All names that the dictionary has for a system.
std::span<const OtherWord> words_of(OtherSystem system);

/// The entry of a name that is written as OtherWord::name, or nullptr.
const OtherWord* find_word(OtherSystem system, std::string_view name);

/// A flag or key as OtherWord writes names: "--Batch-Size" is "batch_size".
std::string word_name(std::string_view flag);

/// The single keys of OtherWord::keys.
std::vector<std::string> split_keys(std::string_view keys);

/// The keys that a name of other systems stands for: those of `Common` if it is there,
/// else of every system; at most three. Nothing where none knows it.
std::vector<std::string> keys_of_word(std::string_view name);

/// The reason why no key takes the place of a name, where a system has that name without
/// a key.
std::optional<std::string_view> why_no_key(std::string_view name);

/// The end of a message about a key that does not exist, where another system has a
/// setting of that name ("; did you mean optimizer.lr?"); else an empty text.
std::string other_word_hint(std::string_view name);

}  // namespace longhaul::config
