#include "longhaul/families/adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/config/rules.h"
#include "longhaul/families/family.h"

namespace longhaul {
namespace families {
namespace {

using Visit = std::function<void(Linear&, bool of_expert)>;

void visit_feed_forward(FeedForward& layer, bool of_expert, const Visit& visit) {
  if (layer.gate) visit(*layer.gate, of_expert);
  visit(layer.up, of_expert);
  visit(layer.down, of_expert);
}

/// Calls visit(layer, of_expert) for each linear layer of the blocks, but for routers.
void visit_linear(Network& network, const Visit& visit) {
  for (Block& block : network.blocks) {
    for (Step& step : block) {
      for (Branch& branch : step.branches) {
        by_kind(
            branch.core,
            [&](Attention& layer) {
              for (Linear* one : {&layer.query, &layer.key, &layer.value, &layer.out}) {
                visit(*one, false);
              }
            },
            [&](FeedForward& layer) { visit_feed_forward(layer, false, visit); },
            [&](Experts& layer) {
              for (FeedForward& expert : layer.experts) {
                visit_feed_forward(expert, true, visit);
              }
              if (layer.shared) visit_feed_forward(*layer.shared, false, visit);
            });
      }
    }
  }
}

bool is_meant(const std::string& entry, const std::string& module) {
  if (entry.find_first_of("*?") != std::string::npos) {
    return matches_parameter(entry, module);
  }
  return module == entry || module.ends_with("." + entry);
}

std::string last_part(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

/// Returns the modules that an entry means. Throws ConfigError, which lists the last
/// parts of `modules`, if there are none.
std::set<std::string> meant(const RunConfig& config, const std::string& key,
                            const std::string& entry,
                            const std::set<std::string>& modules) {
  std::set<std::string> found, parts;
  for (const std::string& module : modules) {
    parts.insert(last_part(module));
    if (is_meant(entry, module)) found.insert(module);
  }
  if (found.empty()) {
    config::fail_key(config, key,
                     "{}: \"{}\" matches no module; there are {} modules, such as {}, "
                     "whose names end with {}",
                     key, entry, modules.size(), modules.empty() ? "" : *modules.begin(),
                     fmt::join(parts, ", "));
  }
  return found;
}

/// Gives the low-rank part to those projections of experts whose tensors are `adapted`,
/// and returns whether there are any.
bool adapt_experts(Network& network, const std::set<std::string>& adapted,
                   const LowRank& form) {
  bool any = false;
  const auto adapt = [&](Experts& layer) {
    const bool inner = adapted.contains(gate_up_of(layer));
    const bool last = adapted.contains(down_of(layer));
    any = any || inner || last;
    for (FeedForward& expert : layer.experts) {
      if (inner) {
        expert.gate.value().adapter = expert.up.adapter = form;
        expert.up.adapter->a_of = expert.gate->name;
      }
      if (last) expert.down.adapter = form;
    }
  };
  for (Block& block : network.blocks) {
    for (Step& step : block) {
      for (Branch& branch : step.branches) {
        by_kind(
            branch.core, [](Attention&) {}, [](FeedForward&) {},
            [&](Experts& layer) { adapt(layer); });
      }
    }
  }
  return any;
}

/// Throws ConfigError for settings that an adapter of experts cannot have.
void check_experts(const RunConfig& config) {
  if (config.adapter.kind == AdapterKind::Dora) {
    config::fail_key(config, "adapter.kind",
                     "adapter.kind = \"dora\" is not available for experts, nor is it in "
                     "PEFT; leave the experts out of adapter.modules, or take \"lora\"");
  }
  if (config.adapter.dropout > 0.0) {
    config::fail_key(config, "adapter.dropout",
                     "adapter.dropout = {} is not available for experts, nor is it in "
                     "PEFT; set it to 0, or leave the experts out of adapter.modules",
                     config.adapter.dropout);
  }
}

/// Returns the layers, and the tensors of all experts, that adapter.modules means.
std::set<std::string> adapted_layers(const RunConfig& config, const ModelConfig& model) {
  constexpr const char* kKey = "adapter.modules";
  std::set<std::string> modules, of_experts, wanted;
  for (const NamedLinear& one : linear_layers(model.network)) {
    (one.of_expert ? of_experts : modules).insert(one.layer->name);
  }
  std::set<std::string> all = modules;
  all.merge(tensors_of_experts(model.network));
  for (const std::string& entry : config.adapter.modules.entries) {
    if (entry != kAllLinear) {
      const auto expert = std::ranges::find_if(
          of_experts, [&](const auto& module) { return is_meant(entry, module); });
      if (expert != of_experts.end()) {
        config::fail_key(
            config, kKey,
            "{}: \"{}\" also means {}, and experts have their adapters together, as in "
            "PEFT: name those \"mlp.experts.gate_up_proj\" and "
            "\"mlp.experts.down_proj\", and other layers by more of their names",
            kKey, entry, *expert);
      }
      wanted.merge(meant(config, kKey, entry, all));
    } else if (std::holds_alternative<BertHead>(model.network.head)) {
      config::fail_key(config, kKey,
                       "adapter.modules = \"all-linear\" means the layers of the head "
                       "too for a model of type {}, which have no low-rank part here; "
                       "name modules, as [\"query\", \"value\"]",
                       model.model_type);
    } else {
      wanted.insert(modules.begin(), modules.end());
    }
  }
  return wanted;
}

/// Throws ConfigError where the files hold the layer in another form: there an adapter in
/// PEFT's format belongs to the whole tensor of the files.
void check_stored_alone(const RunConfig& config, const ModelConfig& model,
                        const std::string& key, const std::string& module,
                        const std::optional<StoredForm>& stored) {
  if (!stored) return;
  config::fail_key(config, key,
                   "{}: {} is {} in the files of a model of type {}, where an adapter in "
                   "PEFT's format belongs to the whole tensor as it is stored; this is "
                   "not available; name other modules",
                   key, module,
                   stored->transposed && stored->rows == stored->block
                       ? "transposed"
                       : "a part of the tensor " + stored->name,
                   model.model_type);
}

std::set<std::string> saved_modules(const RunConfig& config, const ModelConfig& model,
                                    const std::set<std::string>& adapted) {
  constexpr const char* kKey = "adapter.save";
  std::set<std::string> modules, wanted;
  for (const ParameterDescription& p : model.description.parameters()) {
    if (!is_of_adapter(p.name)) modules.insert(module_of(p.name));
  }
  for (const std::string& entry : config.adapter.save.entries) {
    wanted.merge(meant(config, kKey, entry, modules));
  }
  for (const ParameterDescription& p : model.description.parameters()) {
    const std::string module = module_of(p.name);
    if (!wanted.contains(module)) continue;
    if (adapted.contains(module)) {
      config::fail_key(config, kKey,
                       "adapter.save and adapter.modules both mean {}; a module that is "
                       "trained whole needs no low-rank part",
                       module);
    }
    if (p.expert) {
      config::fail_key(
          config, kKey,
          "adapter.save: {} belongs to an expert, and files hold all experts "
          "in one tensor; experts cannot be trained whole beside an adapter",
          p.name);
    }
    const auto& tied = model.description.tied;
    if (tied && p.name == tied->embedding) {
      config::fail_key(
          config, kKey,
          "adapter.save: {} is tied to {}, and PEFT trains a copy of its own "
          "of a module that is trained whole; leave it out",
          module, module_of(tied->head));
    }
    check_stored_alone(config, model, kKey, module, p.stored);
  }
  return wanted;
}

/// Counts the multiplications whose weights have no gradient.
void count_frozen(UnitDescription& unit) {
  if (unit.kind == UnitKind::Embedding) return;
  double trained = 0.0;
  for (const ParameterDescription& p : unit.parameters) {
    if (!p.trained || p.shape.size() != 2) continue;
    // A token is sent to some of the experts.
    const double used = p.expert ? static_cast<double>(unit.forward.routed) /
                                       static_cast<double>(p.expert->of)
                                 : 1.0;
    trained += used * static_cast<double>(p.num_elements());
  }
  unit.work.frozen = std::max(0.0, unit.work.all_products() - trained);
}

}  // namespace

std::vector<NamedLinear> linear_layers(const Network& network) {
  std::vector<NamedLinear> found;
  // The visit changes nothing.
  visit_linear(const_cast<Network&>(network), [&](Linear& layer, bool of_expert) {
    found.push_back({&layer, of_expert});
  });
  return found;
}

std::set<std::string> tensors_of_experts(const Network& network) {
  std::set<std::string> names;
  for (const Block& block : network.blocks) {
    const Experts* layer = experts_of(block);
    if (layer == nullptr || layer->fused.empty()) continue;
    names.insert({gate_up_of(*layer), down_of(*layer)});
  }
  return names;
}

Network without_adapters(Network network) {
  visit_linear(network, [](Linear& layer, bool) { layer.adapter.reset(); });
  return network;
}

bool is_of_adapter(std::string_view parameter) {
  return parameter.find(".lora_") != std::string_view::npos;
}

std::string module_of(std::string_view parameter) {
  return std::string(parameter.substr(0, parameter.rfind('.')));
}

std::string layers_left_out(const AdapterSection& section, const Network& network) {
  if (!section.kind || !std::ranges::count(section.modules.entries, kAllLinear))
    return {};
  std::set<std::string> adapted;
  int64_t of_experts = 0;
  for (const NamedLinear& one : linear_layers(network)) {
    if (one.layer->adapter) adapted.insert(last_part(one.layer->name));
    if (one.of_expert && !one.layer->adapter) ++of_experts;
  }
  if (of_experts == 0) return {};
  return fmt::format(
      "adapter.modules = \"all-linear\" adapts {}, and leaves out {} layers of experts, "
      "as PEFT does; \"mlp.experts.gate_up_proj\" and \"mlp.experts.down_proj\" name "
      "them",
      fmt::join(adapted, ", "), of_experts);
}

std::vector<std::string> modules_trained_whole(const ModelDescription& model) {
  std::set<std::string> found;
  if (!model.has_base) return {};
  for (const ParameterDescription& p : model.parameters()) {
    if (p.trained && !is_of_adapter(p.name)) found.insert(module_of(p.name));
  }
  return {found.begin(), found.end()};
}

}  // namespace families

void add_adapter(const RunConfig& config, ModelConfig& model) {
  using namespace families;
  const AdapterSection& section = config.adapter;
  if (!section.kind) return;
  const std::set<std::string> adapted = adapted_layers(config, model);
  const LowRank form{*section.rank, section.scale(), section.dropout,
                     section.kind == AdapterKind::Dora};
  visit_linear(model.network, [&](Linear& layer, bool of_expert) {
    if (of_expert || !adapted.contains(layer.name)) return;
    check_stored_alone(config, model, "adapter.modules", layer.name, layer.stored);
    layer.adapter = form;
  });
  if (adapt_experts(model.network, adapted, form)) check_experts(config);
  model.description = find_family(model.model_type)->describe(model.network);
  model.description.has_base = true;
  const std::set<std::string> whole = saved_modules(config, model, adapted);
  for (UnitDescription& unit : model.description.units) {
    for (ParameterDescription& p : unit.parameters) {
      p.trained = is_of_adapter(p.name) || whole.contains(module_of(p.name));
    }
    count_frozen(unit);
  }
  model.description.drops = model.description.drops || section.dropout > 0.0;
}

ModelConfig load_run_model(const RunConfig& config, const fs::path& config_json) {
  ModelConfig model = load_model_config(config_json, config.model.override_);
  add_adapter(config, model);
  return model;
}

}  // namespace longhaul
