#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "longhaul/checkpoint/hf/hf_forms.h"
#include "longhaul/config/run_config.h"
#include "longhaul/families/model_config.h"
#include "longhaul/train/session/session.h"

namespace longhaul::apps {

/// What eval and generate are told of a model and of how it lies on the ranks.
struct ModelCall {
  std::string model;
  std::string dtype = "auto";
  std::string device = "auto";
  fs::path device_plugin;
  bool plain = false;
  std::optional<int64_t> tp, pp, cp, zero;
};

/// The model, --dtype, --device, --device-plugin, --tp and --pp.
void add_model_options(CLI::App& verb, ModelCall& call);

/// Does the work of a verb with the ranks that a launcher started, else alone; none waits
/// longer for another than a run's ranks do. `use` gets the model that a person named; of
/// a run whose newest checkpoint turns out to be damaged, which all ranks have to find
/// alike, again with an older one, and standard error says so. The verb's exit code.
int with_model(
    const std::string& named,
    const std::function<void(const fs::path& path,
                             const std::shared_ptr<comm::Communicator>& world)>& use);

/// A model that was found, whose files have its parameters; no weight is loaded yet.
struct NamedModel {
  checkpoint::SharedSource source;
  ModelConfig config;
};
/// An HF directory, a checkpoint or a run (its newest valid checkpoint). Collective.
NamedModel open_model(const fs::path& path, comm::Communicator& world);

/// Where the ranks are to hold it: as the call says; where it says nothing and there are
/// several ranks, as the run did that the weights are from; else each has all of it.
/// Tokens are never split outside of regions, so that any number of them will do.
/// Collective.
ParallelSection asked_parallel(const ModelCall& call, const NamedModel& model,
                               comm::Communicator& world);

/// Loads it for passes over sequences of up to `positions`, `micro_size` at a time.
/// ConfigError when the model has fewer positions, where the layout does not
/// fit ranks or model, or the device not its library. Collective.
train::Session load_model(const NamedModel& model, const ModelCall& call,
                          const ParallelSection& parallel, int64_t positions,
                          int64_t micro_size, std::shared_ptr<comm::Communicator> world);

}  // namespace longhaul::apps
