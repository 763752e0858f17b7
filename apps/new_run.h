#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "apps/data_facts.h"
#include "longhaul/config/run_config.h"
#include "longhaul/families/model_config.h"

namespace longhaul::apps {

/// What this machine has for a run.
struct MachineFacts {
  std::string device = "cpu";  ///< what run.device = "auto" finds: a value of the key
  std::string device_name;     ///< for people
  int64_t ranks = 1;           ///< accelerators, each a rank; on a CPU one
  int64_t threads = 1;         ///< CPUs that the process may use
  int64_t memory_bytes = 0;    ///< that a rank may fill; 0: not known
  double bf16_rate = 0.0;      ///< of a product, in FLOP/s
  double fp32_rate = 0.0;
  bool is_cpu() const { return device == "cpu"; }
};

struct NewRunFacts {
  MachineFacts machine;
  ModelConfig model;
  fs::path model_path;  ///< as it was given
  bool has_weights = false;
  std::vector<DataFacts> train;
  std::string field;  ///< of ready ids
  fs::path run_dir;
  /// Bytes of memory that a rank of such a run takes at most, about.
  std::function<int64_t(const RunConfig&)> bytes_of;
};

/// The settings that a person would begin with, and why they are what they are.
struct NewRun {
  RunConfig config;
  std::map<std::string, std::string> why;  ///< by "section.key", each one line
  std::string warning;                     ///< empty: nothing stands in its way here
};

/// Sequences of one pass over the training data, of that length.
int64_t sequences_of(const std::vector<DataFacts>& train, int64_t seq_len);

/// Length, batch, precision, memory, learning rate and how often things are done, by the
/// model, the data and the machine. ConfigError where data has sequences of several
/// lengths.
NewRun choose_new_run(const NewRunFacts& facts);

/// The run file with its comments.
std::string new_run_toml(const NewRun& run, const NewRunFacts& facts);

}  // namespace longhaul::apps
