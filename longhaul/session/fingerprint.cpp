#include "longhaul/session/fingerprint.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/headeronly/version.h>

#include <cstdlib>
#include <set>

#include "longhaul/checkpoint/read/saved_partition.h"
#include "longhaul/comm/agree.h"
#include "longhaul/device/device.h"
#include "longhaul/device/neuron_library.h"
#include "longhaul/ops/attention/attention.h"
#include "longhaul/ops/kernels/cpu.h"
#include "longhaul/ops/linear/products.h"

namespace longhaul::session {
namespace {

/// Environment variables by which a person selects other code inside the libraries.
constexpr const char* kLibraryLimits[] = {
    "DNNL_MAX_CPU_ISA",        "MKL_CBWR",           "MKL_DEBUG_CPU_TYPE",
    "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"};

Json library_limits() {
  Json limits = Json::object();
  for (const char* name : kLibraryLimits) {
    if (const char* value = std::getenv(name)) limits[name] = value;
  }
  return limits;
}

/// Returns what computes the attention of the network's layers on this rank.
std::string attention_of_layers(const families::Network& network, at::ScalarType compute,
                                at::Device device) {
  std::set<std::string> found;
  for (const families::Block& block : network.blocks) {
    if (const families::Attention* layer = families::attention_of(block)) {
      found.insert(ops::describe_attention(*layer, layer->head_dim, layer->dropout,
                                           compute, device));
    }
  }
  return fmt::format("{}", fmt::join(found, "; "));
}

}  // namespace

Json numerics_fingerprint(const Json& place) {
  Json all = {{"instruction_set", at::get_cpu_capability()},
              {"kernels", system::isa_name(system::best_isa())},
              {"cpu", kernels::cpu_name()},
              {"library_limits", library_limits()},
              {"threads", at::get_num_threads()},
              {"libtorch", TORCH_VERSION}};
  all.update(place);
  return all;
}

Json merge_fingerprints(const std::vector<Json>& of_ranks) {
  Json merged = Json::object();
  for (const auto& [key, value] : of_ranks.at(0).items()) {
    std::set<Json> values;
    for (const Json& rank : of_ranks) values.insert(rank.at(key));
    merged[key] = values.size() == 1 ? value : Json(values);
  }
  return merged;
}

Json fingerprint_of(const Machine& machine, const layout::LayoutDescription& layout,
                    const families::Network& network) {
  const at::ScalarType compute = tensor::to_scalar_type(machine.policy.compute);
  Json place = {{"layout", layout.describe()},
                {checkpoint::kPartition, layout.partition()},
                {"device", device::name(machine.device)},
                {"collectives", device::describe_sums(machine.device, *machine.world)},
                {"products", ops::describe_products(compute, machine.device)},
                {"attention", attention_of_layers(network, compute, machine.device)}};
  if (const device::NeuronLoaded* backend = device::loaded_neuron()) {
    place["backend"] = backend->versions;
  }
  std::vector<Json> of_ranks;
  for (const std::string& text :
       comm::distinct_texts(*machine.world, json_text(numerics_fingerprint(place)))) {
    of_ranks.push_back(parse_json(text, "a rank's fingerprint"));
  }
  return merge_fingerprints(of_ranks);
}

FingerprintComparison compare_fingerprints(const Json& saved, const Json& now) {
  FingerprintComparison result;
  for (const auto& [key, value] : now.items()) {
    if (!saved.contains(key)) {
      result.unknown += fmt::format("{}{}", result.unknown.empty() ? "" : ", ", key);
    } else if (saved[key] != value) {
      result.differences +=
          fmt::format("{}{} was {}, is {}", result.differences.empty() ? "" : "; ", key,
                      json_text(saved[key]), json_text(value));
    }
  }
  return result;
}

}  // namespace longhaul::session
