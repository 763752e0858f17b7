#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "apps/ranks.h"
#include "longhaul/checkpoint/hf/hf_forms.h"
#include "longhaul/config/run_config.h"
#include "longhaul/families/model_config.h"
#include "longhaul/session/session.h"

namespace longhaul::apps {

/// What a person tells eval and generate about a model and its layout on the ranks.
struct ModelCall {
  std::string model;
  std::string adapter;  ///< a directory in PEFT's format; empty: none
  std::string dtype = "auto";
  std::string device = "auto";
  fs::path device_plugin;
  std::string device_fallback = "error";
  std::string neuron_python = "python3";
  bool plain = false;
  std::optional<int64_t> tp, pp, cp, ep, zero;
};

/// Adds --neuron-python, the value of run.neuron_python.
void add_neuron_option(CLI::App& verb, std::string& python);

/// Adds the model, --adapter, --dtype, --device and what belongs to it, --tp, --pp and
/// --ep.
void add_model_options(CLI::App& verb, ModelCall& call);

/// Does the work of a verb on the ranks that a launcher started, else in this process
/// alone, and returns the verb's exit code. A rank waits for another at most as long as
/// in a run with the default resilience.comm_timeout_s. Errors name the addresses of the
/// copies that `objects` has made. `use` gets the path of the model that a person named.
/// If that is a run whose newest checkpoint turns out to be damaged, standard error says
/// so and `use` is called again with an older checkpoint. All ranks must find the same
/// damage.
int with_model(const std::string& named, const objects::Access& objects,
               const std::function<void(const fs::path& path, const World& world)>& use);

/// A model that was found, and whose files have its parameters; no weight is loaded yet.
struct NamedModel {
  checkpoint::SharedSource source;
  ModelConfig config;
  AdapterSection adapter = {};  ///< of the model's adapter, if it has one
};
/// Opens an HF directory, a checkpoint or a run (its newest valid checkpoint), with the
/// adapter in the directory `adapter` if there is one. A run of an adapter is opened with
/// its base. Collective.
NamedModel open_model(const fs::path& path, const objects::Access& objects,
                      comm::Communicator& world, const fs::path& adapter = {});

/// Returns the layout in which the ranks hold the model: that of the call, if the call
/// says anything about it. Else several ranks take the layout of the run that wrote the
/// weights, and without such a run each rank holds all of the model except experts. If
/// neither the call nor a run that fits the ranks says how experts are spread, they lie
/// over the largest number of ranks that divides both dp x cp and the number of experts.
/// Sequence parallelism (parallel.sequence) is off, so that sequences may have any
/// length. Collective.
ParallelSection asked_parallel(const ModelCall& call, const NamedModel& model,
                               comm::Communicator& world);

/// Loads a model for passes over sequences of up to `positions`, `micro_size` at a time.
/// Throws ConfigError if the model has fewer positions, if the layout does not fit the
/// ranks or the model, or if --device and --device-plugin do not fit. Collective.
session::Session load_model(const NamedModel& model, const ModelCall& call,
                            const ParallelSection& parallel, int64_t positions,
                            int64_t micro_size, World world);

}  // namespace longhaul::apps
