#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/translate/launched_job.h"

// These rules are common to the programs that fine-tune with the Trainer of transformers:
// axolotl, TRL and LLaMA-Factory.

namespace longhaul::translate {

/// How such a program names its settings, and what they are where they are not given.
struct TrainerWords {
  std::string scheduler = "lr_scheduler_type";
  std::string kind = "linear";
  std::string optimizer = "optim";
  std::string epochs = "num_train_epochs";
  double num_epochs = 3.0;
  double rate = 0.0;          ///< 0: a rate has to be given
  int64_t logging = 0;        ///< steps between lines of the log; 0: nothing is put
  bool bf16 = true;           ///< an absent bf16 means bf16, or what the device can do
  bool null_bf16 = true;      ///< null means the same as an absent bf16, else false
  bool short_warmup = false;  ///< a warm-up has two steps at least, and one by default
  bool recompute = true;
};

/// Puts the run's length, the optimizer with its schedule, sharding, recomputation,
/// precision, and how often the run saves and validates. Throws InputError for settings
/// of fine-tuning that longhaul does not have and that would change the training.
void put_trainer(const Job& job, const TrainerWords& words);

/// Returns all values of the settings of one name; a value with commas is several.
std::vector<std::string> listed(const Job& job, const std::string& name);

/// How a program names the settings of an adapter, and its defaults.
struct AdapterWords {
  std::string kind = {};  ///< why there is an adapter: "adapter = lora"
  std::string rank = "lora_r";
  std::string dora = "use_dora";
  std::string rslora = "use_rslora";
  std::string modules = "lora_target_modules";
  std::string save = "lora_modules_to_save";
  std::string start = {};  ///< names the directory of an adapter to begin with
  std::optional<int64_t> default_rank = {};
  std::optional<double> default_alpha = {};
  double default_dropout = 0.0;
  std::vector<std::string> default_modules = {"all-linear"};  ///< empty: asks for them
};
/// Puts [adapter] and init.adapter.
void put_adapter(const Job& job, const AdapterWords& words);

/// Puts [preference]: `loss`, which the setting `from` says, and the settings with these
/// names. Throws InputError for a loss that is not there.
void put_preference(const Job& job, const std::string& loss, const std::string& from,
                    const std::string& beta, const std::string& smoothing);

/// The chats, or pairs of answers, that a program trains on.
struct Chats {
  std::vector<std::string> sets = {};  ///< data sets as the user names them
  std::string how = "--chat";          ///< an option of longhaul data build
  std::string targets = {};            ///< what the build is told of targets, or nothing
  std::string length = {};             ///< the setting of the longest text
  Known<int64_t> tokens = {};          ///< its value
  bool pairs = false;
  bool whole = true;    ///< rows hold whole conversations, else one follows the other
  bool packed = false;  ///< several stand in a row there, too
  bool cut = true;      ///< texts that are too long are cut there, else left out
};
/// Puts data.train with the command that builds its store, data.seq_len and how rows are
/// filled.
void put_chats(const Job& job, const Chats& chats);

}  // namespace longhaul::translate
