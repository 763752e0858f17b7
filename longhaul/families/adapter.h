#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/config/run_config.h"
#include "longhaul/families/model_config.h"

namespace longhaul {

/// Makes the model the base of an adapter as the section says: gives linear layers their
/// low-rank parts, and marks all parameters but those of the adapter and of adapter.save
/// as not trained. Does nothing without adapter.kind. Throws ConfigError, at the place of
/// the key in `config`, for names that match nothing, with the names that there are, and
/// for modules that an adapter of PEFT's format cannot express.
void add_adapter(const RunConfig& config, ModelConfig& model);

/// Reads the model of a run: the config.json, with model.override and [adapter]. Throws
/// as load_model_config and add_adapter do.
ModelConfig load_run_model(const RunConfig& config, const fs::path& config_json);
inline ModelConfig load_run_model(const RunConfig& config) {
  return load_run_model(config, config.model.config);
}

namespace families {

/// Returns the network without the low-rank parts of its layers.
Network without_adapters(Network network);

/// A linear layer, and whether it belongs to one of the routed experts.
struct NamedLinear {
  const Linear* layer = nullptr;
  bool of_expert = false;
};
/// Returns the linear layers of the blocks, but for the routers of experts.
std::vector<NamedLinear> linear_layers(const Network& network);

/// Returns the names of the tensors of all experts (Experts::fused), by which
/// adapter.modules and PEFT's target_parameters name them.
std::set<std::string> tensors_of_experts(const Network& network);

/// Returns a warning if "all-linear" leaves layers of experts out of the network, else an
/// empty text.
std::string layers_left_out(const AdapterSection& section, const Network& network);

/// Returns whether the parameter belongs to a low-rank part.
bool is_of_adapter(std::string_view parameter);
/// Returns the name of a parameter's module: the name without its last part, which is
/// "weight" or "bias".
std::string module_of(std::string_view parameter);
/// Returns the modules of the model that are trained whole beside an adapter, sorted.
std::vector<std::string> modules_trained_whole(const ModelDescription& model);

}  // namespace families
}  // namespace longhaul
