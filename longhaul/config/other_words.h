#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// What other systems call a setting: one dictionary, which answers mistyped keys and
// flags and which `longhaul import --flags` translates by.

namespace longhaul::config {

/// A system whose settings are known. `Common`: what several trainers say, for mistyped
/// keys and flags alone. `Environment`: variables that stand before a command.
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

/// What becomes of a value: it is that of the key; it makes the keys' values together
/// with others or in another unit; there is no key.
enum class Carry { Copy, Rule, None };

struct OtherWord {
  /// In lower case, with _ for -; "training.steps" where the system's files have
  /// sections.
  std::string_view name;
  Carry carry = Carry::None;
  std::string_view keys =
      {};  ///< ours, "batch.global_size batch.micro_size"; none: empty
  std::string_view note = {};  ///< None: why there is no key
};

/// "run_llama_nxd.py (neuronx-distributed)" and so on, for messages.
std::string_view system_name(OtherSystem system);

std::span<const OtherWord> words_of(OtherSystem system);

/// The entry of a name that is written as in OtherWord, or nullptr.
const OtherWord* find_word(OtherSystem system, std::string_view name);

/// A flag or key as OtherWord writes names: "--Batch-Size" is "batch_size".
std::string word_name(std::string_view flag);

std::vector<std::string> split_keys(std::string_view keys);

/// The keys that a name of other systems stands for: those of `Common` if it is there,
/// else of every system; at most three. Nothing where none knows it.
std::vector<std::string> keys_of_word(std::string_view name);

/// Why no key takes the place of a name, where a system has it and none of them has a
/// key.
std::optional<std::string_view> why_no_key(std::string_view name);

/// What to say of a key that does not exist, if another system calls a setting so:
/// "; did you mean optimizer.lr?"; else nothing.
std::string other_word_hint(std::string_view name);

}  // namespace longhaul::config
