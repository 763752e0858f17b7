#include "longhaul/session/settle.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include <limits>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/text.h"
#include "longhaul/comm/hosts.h"
#include "longhaul/config/hardware_profile.h"
#include "longhaul/config/load.h"
#include "longhaul/device/device.h"
#include "longhaul/device/neuron_library.h"
#include "longhaul/device/plugin.h"
#include "longhaul/families/adapter.h"
#include "longhaul/layout/rules.h"
#include "longhaul/ops/fused/device_precision.h"
#include "longhaul/ops/kernels/cpu.h"
#include "longhaul/session/dtype_policy.h"
#include "longhaul/session/layout.h"
#include "longhaul/session/pairs.h"
#include "longhaul/session/session.h"
#include "longhaul/session/threads.h"
#include "longhaul/tensor/device_limits.h"

namespace longhaul::session {
namespace {

at::Device choose_device(const RunSection& run, comm::Communicator& world,
                         comm::Communicator& node, system::Logger& log) {
  if (!run.device_plugin.empty()) device::load_plugin(run.device_plugin);
  if (const device::NeuronLoaded* backend = device::load_neuron_for(run, world, node)) {
    log.info("{} on {}", backend->versions, backend->instance);
    for (const std::string& remark : backend->remarks) log.info("neuron: {}", remark);
  }
  const at::Device device = device::choose(run.device, node);
  device::check(device);
  if (device.type() == at::kPrivateUse1) {
    device::check_plugin_operations(run.device_fallback == "warn");
  }
  return device;
}

/// Throws ConfigError where the device cannot do what the settings ask of it.
void check_abilities(const RunConfig& config, at::Device device) {
  if (config.memory.offload_activations) {
    device::check_side_streams(device, "memory.offload_activations");
  }
  if (!config.profile.steps.empty() || config.profile.every > 0) {
    device::check_timing(device, "[profile]");
  }
}

/// Throws ConfigError where the device cannot run the model: each new shape of an
/// operation would be compiled, and the rows of an expert differ in every step.
void check_shapes(const ModelDescription& model, at::Device device) {
  if (tensor::limits_of(device).any_shapes) return;
  for (const ParameterDescription& parameter : model.parameters()) {
    if (!parameter.expert) continue;
    fail_config(
        "model",
        "{} compiles each shape of an operation, and an expert has another number "
        "of tokens in every step ({}), so that every step would compile. Use a "
        "model without experts there, or this one on GPUs or CPUs (run.device)",
        c10::DeviceTypeName(device.type(), /*lower_case=*/true), parameter.name);
  }
}

/// Throws ConfigError where a parameter of this rank is larger than a tensor of the
/// device may be. Its gradient may have 32 bits.
void check_sizes(const layout::LayoutDescription& layout, const ModelDescription& model,
                 const Machine& machine) {
  const int64_t most = tensor::limits_of(machine.device).most_bytes;
  if (most == std::numeric_limits<int64_t>::max()) return;
  const auto none = [](const std::string&) { return false; };
  for (const auto& placed : layout.parameters(model, machine.world->rank(), none)) {
    const int64_t bytes =
        placed.slice.num_elements() * static_cast<int64_t>(sizeof(float));
    if (bytes <= most) continue;
    fail_config("model",
                "{} takes {} of fp32 on a rank, and a tensor of {} has at most {}; cut "
                "it over more ranks (parallel.tp)",
                placed.slice.name, human_bytes(bytes),
                c10::DeviceTypeName(machine.device.type(), /*lower_case=*/true),
                human_bytes(most));
  }
}

void tell_unused_gpus(const RunSection& run, at::Device device, system::Logger& log) {
  if (run.device != "auto" || !device.is_cpu()) return;
  const std::string unused = device::unused_gpus();
  if (unused.empty()) return;
  log.warning("the run uses the CPU, although this machine has GPUs: {}", unused);
}

/// Makes results repeat bitwise where the settings ask for it. The results of the CPU
/// kernels always repeat; on other devices ATen is told to use deterministic kernels, and
/// collectives between the ranks' devices are prepared.
void set_determinism(const RunSection& run, const Machine& machine, system::Logger& log) {
  const bool wanted = run.deterministic.value_or(machine.device.is_cpu());
  if (machine.device.is_cpu()) {
    if (!wanted) {
      log.warning(
          "run.deterministic = false has no effect: a CPU's results repeat bitwise "
          "anyway");
    }
    return;
  }
  at::globalContext().setDeterministicAlgorithms(wanted, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  ops::set_device_precision();
  for (const std::string& warning : device::prepare_collectives(
           machine.device, wanted, *machine.world, *machine.node)) {
    log.warning(warning);
  }
}

void tell_idle_offload(const MemorySection& memory, at::Device device,
                       system::Logger& log) {
  if (!memory.offload_activations || !device.is_cpu()) return;
  log.warning("memory.offload_activations has no effect: a CPU has no other memory");
}

/// Returns the peak rate of run.hardware, 0 without that setting. Throws ConfigError
/// where the profile is of another machine, or lacks the peak.
double peak_of(const fs::path& file, at::Device device, format::DType compute) {
  if (file.empty()) return 0.0;
  const HardwareProfile profile = parse_hardware_profile(read_text(file), file.string());
  check_machine(profile, file.string(), device::name(device), kernels::cpu_name(),
                at::get_num_threads());
  const bool bf16 = compute == format::DType::BF16;
  const double peak = bf16 ? profile.peak_bf16 : profile.peak_fp32;
  if (peak > 0.0) return peak;
  fail_config("hardware",
              "{} has no peak.{}, which precision.compute needs; measure the machine "
              "again with longhaul bench --out, or leave run.hardware out",
              file.string(), bf16 ? "bf16" : "fp32");
}

}  // namespace

Machine settle_process(const RunConfig& config, std::shared_ptr<comm::Communicator> world,
                       system::Logger& log) {
  Machine machine;
  machine.world = std::move(world);
  machine.node = comm::split_by_host(*machine.world, "node");
  machine.policy = make_policy(config.precision);
  machine.device = choose_device(config.run, *machine.world, *machine.node, log);
  check_abilities(config, machine.device);
  tell_unused_gpus(config.run, machine.device, log);
  set_determinism(config.run, machine, log);
  tell_idle_offload(config.memory, machine.device, log);
  machine.threads = set_threads(config.run.threads, *machine.node);
  machine.hardware_peak =
      peak_of(config.run.hardware, machine.device, machine.policy.compute);
  return machine;
}

Machine settle_machine(const RunConfig& config, std::shared_ptr<comm::Communicator> world,
                       system::Logger& log) {
  (void)derive_batch(config, world->size());  // refuses ranks that do not divide
  return settle_process(config, std::move(world), log);
}

ModelConfig settle_model(const RunConfig& config, const fs::path& config_json,
                         system::Logger& log) {
  ModelConfig model = load_run_model(config, config_json);
  for (const std::string& field : model.ignored_fields) {
    log.warning("config.json: the field '{}' is not known and has no effect", field);
  }
  train_on_pairs(config, model);
  layout::check_against_model(config, model);
  for (const std::string& warning : settings_without_effect(config, model)) {
    log.warning(warning);
  }
  return model;
}

layout::LayoutDescription settle_layout(const RunConfig& config,
                                        const ModelDescription& model,
                                        const Machine& machine) {
  check_shapes(model, machine.device);
  // Only a shard group of kind Node depends on which ranks share a machine.
  const bool of_nodes = config.parallel.shard_group.kind == ShardGroup::Kind::Node;
  const layout::Placement placement =
      of_nodes ? placement_of(*machine.world, *machine.node) : layout::Placement();
  layout::LayoutDescription layout =
      layout::describe_layout(config, model, machine.world->size(), placement);
  layout.apart = !tensor::limits_of(machine.device).writes_views;
  check_sizes(layout, model, machine);
  return layout;
}

void refuse_fallbacks(const Session& session) {
  if (session.config().run.device_fallback == "warn") return;
  const std::vector<std::string> names = device::plugin_fallbacks();
  if (names.empty()) return;
  fail_config("device",
              "operations ran on the CPU, since the device {} lacks them: {}; each of "
              "their calls copies to the host and back. Set run.device_fallback = "
              "\"warn\" (--device-fallback warn of eval, generate and serve) to go on "
              "with them all the same",
              session.device().str(), fmt::join(names, ", "));
}

std::string fallback_warning() {
  const std::vector<std::string> names = device::plugin_fallbacks();
  if (names.empty()) return {};
  return fmt::format("operations ran on the CPU, since the device lacks them: {}",
                     fmt::join(names, ", "));
}

void check_fallbacks(const Session& session, system::Logger& log) {
  refuse_fallbacks(session);
  const std::string warning = fallback_warning();
  if (!warning.empty()) log.warning(warning);
}

}  // namespace longhaul::session
