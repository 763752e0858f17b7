#include "apps/links/device_links.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>

#include "apps/links/group_exchanges.h"
#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/refused.h"
#include "longhaul/base/text.h"
#include "longhaul/device/device.h"
#include "longhaul/device/kinds.h"
#include "longhaul/device/neuron_library.h"
#include "longhaul/device/plugin.h"
#include "longhaul/doctor/ways.h"
#include "longhaul/system/cpus.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::apps {
namespace {

using cluster::HealthCheck;

/// Elements of a sum whose result is looked at.
constexpr int64_t kSummed = int64_t{1} << 20;
/// Operations whose start is timed, and their elements.
constexpr int kStarted = 100;
constexpr int64_t kStartedElements = 1024;
constexpr size_t kLogBytes = size_t{64} << 20;

/// Memory into which a library that reads NCCL's variables writes its log. Stays empty
/// where the user has set one of them. Must be made before the first group of devices.
class LibraryLog {
 public:
  LibraryLog() : memory_(::memfd_create("longhaul-doctor", MFD_CLOEXEC)) {
    if (!memory_.is_open()) throw refused("doctor", "memory for a log", errno);
    if (std::getenv("NCCL_DEBUG") || std::getenv("NCCL_DEBUG_FILE")) return;
    ::setenv("NCCL_DEBUG", "INFO", 1);
    ::setenv("NCCL_DEBUG_FILE", path().c_str(), 1);
  }
  std::string text() const { return read_text(path(), kLogBytes); }

 private:
  std::string path() const { return fmt::format("/proc/self/fd/{}", memory_.get()); }

  Descriptor memory_;
};

double largest(comm::Communicator& world, double mine) {
  world.all_reduce_wait(std::span(&mine, 1), comm::ReduceOp::Max);
  return mine;
}

HealthCheck titled(std::string name, HealthCheck check = {}) {
  check.name = std::move(name);
  return check;
}

/// Adds known numbers over all devices. Collective.
HealthCheck check_sums(comm::Communicator& world, comm::Communicator& devices,
                       at::Device device) {
  // Each element is a known number times the rank + 1, so fp32 holds the sums exactly.
  const at::Tensor factor =
      at::arange(kSummed, at::TensorOptions(at::kFloat)).remainder(7).add(1);
  const at::Tensor sums = factor.mul(world.rank() + 1).to(device);
  devices.all_reduce_wait({sums.data_ptr(), kSummed, format::DType::F32},
                          comm::ReduceOp::Sum);
  const at::Tensor expected = factor.mul(0.5 * world.size() * (world.size() + 1.0));
  const double wrong = largest(world, sums.cpu().ne(expected).sum().item().to<double>());
  HealthCheck check;
  if (wrong > 0.0) {
    check = HealthCheck::failed(fmt::format(
        "all_reduce gave {} wrong sums of {}; do not train here", wrong, kSummed));
  } else {
    check.text = fmt::format("{} is right over {}", human_bytes(4.0 * kSummed),
                             counted(world.size(), "device"));
  }
  return titled("device sums", std::move(check));
}

/// Times what the host does to start a collective of the devices. Collective.
HealthCheck check_starts(comm::Communicator& world, comm::Communicator& devices,
                         at::Device device) {
  const at::Tensor x =
      at::zeros({kStartedElements}, at::TensorOptions(device).dtype(at::kFloat));
  std::vector<comm::WorkPtr> started;
  world.barrier_wait();
  const system::Stopwatch watch;
  for (int i = 0; i < kStarted; ++i) {
    started.push_back(devices.all_reduce(
        {x.data_ptr(), kStartedElements, format::DType::F32}, comm::ReduceOp::Sum));
  }
  const double seconds = largest(world, watch.seconds() / kStarted);
  for (const comm::WorkPtr& work : started) work->wait();
  HealthCheck check;
  check.text = fmt::format(
      "starting an all_reduce takes the host {:.1f} us on the "
      "slowest rank",
      1e6 * seconds);
  check.values = {{"seconds", seconds}};
  return titled("host time", std::move(check));
}

/// Returns a check of the operation by its slowest rank. Collective.
HealthCheck check_exchange(comm::Communicator& world, const GroupExchange& one) {
  const auto seconds = [&](const measure::SentBytes& point) {
    return largest(world, point.bytes > 0.0 ? point.bytes / point.bytes_per_s : 0.0);
  };
  const double shortest = seconds(one.points.front());
  const double longest = seconds(one.points.back());
  const double rate = largest(world, one.points.back().bytes) / longest;
  HealthCheck check;
  check.text =
      fmt::format("{} over {}, {} on each node: {:.2f} GB/s; {}: {:.1f} us",
                  human_bytes(measure::kExchangeBytes.back()),
                  counted(one.spread.ranks, "rank"), one.spread.on_node, 1e-9 * rate,
                  human_bytes(measure::kExchangeBytes.front()), 1e6 * shortest);
  check.values = {{"ranks", one.spread.ranks},
                  {"on_node", one.spread.on_node},
                  {"bytes_per_second", rate},
                  {"seconds", shortest}};
  return titled(fmt::format("device {} {}", layout::group_name(one.line.group),
                            layout::operation_name(one.line)),
                std::move(check));
}

}  // namespace

std::vector<HealthCheck> try_devices(const RunConfig& config, comm::Communicator& world,
                                     comm::Communicator& node) {
  const LibraryLog log;
  if (!config.run.device_plugin.empty()) device::load_plugin(config.run.device_plugin);
  std::string backend;
  if (const device::NeuronLoaded* loaded =
          device::load_neuron_for(config.run, world, node)) {
    backend = fmt::format("{} on {}", loaded->versions, loaded->instance);
  }
  const at::Device device = device::choose(config.run.device, node);
  if (!world.any(!device.is_cpu())) return {};
  if (world.any(device.is_cpu())) {
    return {titled(
        "run.device",
        HealthCheck::failed("some ranks have a device for run.device and some have "
                            "none; look for a device that is not seen"))};
  }
  device::check(device);
  if (device.type() == at::kPrivateUse1) {
    device::check_plugin_operations(config.run.device_fallback == "warn");
  }
  std::vector<HealthCheck> checks;
  if (!backend.empty()) {
    HealthCheck check;
    check.text = backend;
    checks.push_back(titled("backend", std::move(check)));
  }
  for (std::string& warning :
       device::prepare_collectives(device, /*repeats=*/false, world, node)) {
    checks.push_back(titled("device settings"));
    checks.back().result = cluster::HealthResult::Warning;
    checks.back().text = std::move(warning);
  }
  const std::shared_ptr<comm::Communicator> devices =
      device::group_for(device, world, {.uses = layout::Uses::Both});
  device::open_groups({devices});
  checks.push_back(check_sums(world, *devices, device));
  checks.push_back(check_starts(world, *devices, device));
  try {
    for (const GroupExchange& one : measure_exchanges(config, device, world, node)) {
      if (one.spread.ranks > 1) checks.push_back(check_exchange(world, one));
    }
  } catch (const ConfigError& error) {  // every rank has the same layout
    checks.push_back(titled("device groups", HealthCheck::failed(error.message())));
  }
  checks.push_back(doctor::check_ways(world, log.text(), doctor::rdma_devices()));
  checks.push_back(doctor::check_numa(
      world,
      {system::numa_nodes(system::allowed_cpus()),
       system::numa_node_of(device::kind_of(device).pci_address(device.index()))}));
  return checks;
}

}  // namespace longhaul::apps
