#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "apps/inputs/data_facts.h"
#include "longhaul/config/run_config.h"
#include "longhaul/families/model_config.h"

namespace longhaul::apps {

/// What this machine has for a run.
struct MachineFacts {
  std::string device = "cpu";      ///< the value of run.device that "auto" stands for
  std::string device_name;         ///< for people
  int64_t ranks = 1;               ///< accelerators, each a rank; on a CPU one
  int64_t threads = 1;             ///< CPUs that the process may use
  int64_t memory_bytes = 0;        ///< bytes that a rank may fill; 0: not known
  double bf16_rate = 0.0;          ///< speed of a matrix product in bf16, in FLOP/s
  double fp32_rate = 0.0;          ///< speed of a matrix product in fp32, in FLOP/s
  std::string neuron_python = {};  ///< the value of run.neuron_python, with "neuron"
  bool is_cpu() const { return device == "cpu"; }
};

/// Everything that the settings of a new run follow from.
struct NewRunFacts {
  MachineFacts machine;
  ModelConfig model;
  fs::path model_path;       ///< as it was given
  bool has_weights = false;  ///< training goes on from the weights in model_path
  std::vector<DataFacts> train;
  std::string field;  ///< the field of a record that holds ready ids
  fs::path run_dir;
  bool lora = false;  ///< an adapter is trained instead of the model's weights
  /// Returns whether the run trains on chats, or on pairs.
  bool is_on_chats() const;
  bool is_on_pairs() const;
  /// About how many bytes of memory a rank takes at most in a run with these settings.
  std::function<int64_t(const RunConfig&)> bytes_of;
};

/// The settings that a person would begin with, and why they are what they are.
struct NewRun {
  RunConfig config;
  std::map<std::string, std::string> why;  ///< a line for each "section.key"
  std::string warning;  ///< why the run does not fit here; empty: it fits
};

/// Returns how many sequences of `seq_len` tokens one pass over the training data has.
/// Rows of whole chats are a little more, since they are not full.
int64_t sequences_of(const std::vector<DataFacts>& train, int64_t seq_len);

/// Chooses sequence length, batch, precision, memory savings, learning rate, and how
/// often the run saves and validates, by the model, the data and the machine. Throws
/// ConfigError if the data has sequences of several fixed lengths.
NewRun choose_new_run(const NewRunFacts& facts);

/// Returns the run file as TOML, with its comments.
std::string new_run_toml(const NewRun& run, const NewRunFacts& facts);

}  // namespace longhaul::apps
