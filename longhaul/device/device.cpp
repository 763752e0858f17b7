#include "longhaul/device/device.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/AutogradState.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/comm/any_memory.h"
#include "longhaul/comm/backend.h"
#include "longhaul/comm/device_communicator.h"
#include "longhaul/comm/device_wait.h"
#include "longhaul/comm/through_host.h"
#include "longhaul/device/cuda_library.h"
#include "longhaul/device/kinds.h"
#include "longhaul/device/nccl_settings.h"
#include "longhaul/device/plugin.h"
#include "longhaul/device/tensor_group.h"
#include "longhaul/tensor/buffer_of.h"

namespace longhaul::device {
namespace {

/// The most thread blocks of a GPU that an operation beside computation takes: each keeps
/// a multiprocessor from the products meanwhile.
constexpr int kBlocksBeside = 16;

/// Returns the type of the accelerator that `wanted` means, or the CPU. Throws
/// ConfigError if there is no such device.
at::DeviceType present(const std::string& wanted) {
  if (wanted == "cpu") return at::kCPU;
  const bool cuda = wanted == "cuda" || (wanted == "auto" && !plugin_is_loaded());
  const std::string obstacle = cuda ? cuda_library().obstacle : std::string();
  const auto found = at::getAccelerator();
  const bool any = found && at::accelerator::deviceCount() > 0;
  const bool usable = any && (*found != at::kCUDA || obstacle.empty());
  if (wanted == "auto") return usable ? *found : at::kCPU;
  // "neuron" and "plugin" mean the device of the library that is loaded.
  const at::DeviceType kind = wanted == "cuda" ? at::kCUDA : at::kPrivateUse1;
  if (usable && *found == kind) return kind;
  std::string why;
  if (!obstacle.empty()) why = fmt::format(" ({})", obstacle);
  if (cuda && obstacle.empty())
    why = " (LibTorch finds no GPU; does nvidia-smi show one?)";
  if (cuda) why += "; `longhaul docs devices` says how a build for CUDA is made";
  if (wanted == "plugin") why = ", and name its library in run.device_plugin";
  fail_config(
      "device",
      "run.device = \"{}\", but no such device is usable here; use \"cpu\" or \"auto\"{}",
      wanted, why);
}

at::Tensor bytes_at(const void* data, size_t bytes, at::Device device) {
  return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(bytes)},
                       at::TensorOptions(device).dtype(at::kByte));
}

/// Returns a buffer of the device as a flat tensor: the buffer's own tensor, or one over
/// its bytes.
at::Tensor tensor_at(const comm::ConstBuffer& buffer, at::Device device) {
  const at::Tensor own = tensor::tensor_of(buffer);
  return own.defined() ? own.detach().view(-1)
                       : bytes_at(buffer.data, buffer.bytes(), device);
}

/// Returns the host's memory as a tensor like `device`.
at::Tensor host_like(const void* host, const at::Tensor& device) {
  return at::from_blob(const_cast<void*>(host), device.sizes(),
                       device.options().device(at::kCPU));
}

/// Returns the functions that copy between the host and the device. They use LibTorch's
/// copy_, which waits for the copy in both directions, since the host's memory is
/// pageable.
comm::DeviceCopies copies_of(at::Device device) {
  return {[device](void* host, const comm::ConstBuffer& from) {
            const at::Tensor there = tensor_at(from, device);
            host_like(host, there).copy_(there);
          },
          [device](const comm::Buffer& to) {
            return [there = tensor_at(to, device)](const void* host) {
              there.copy_(host_like(host, there));
            };
          }};
}

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/// Returns what a function of the device gives; nothing if the device lacks the
/// function.
template <typename Value, typename Function>
std::optional<Value> told(Function function) {
  try {
    return function();
  } catch (const c10::NotImplementedError&) {
    return std::nullopt;
  }
}

/// Returns the device's allocator: null on a CPU, and if a plug-in has registered none
/// or one that does not count memory.
c10::DeviceAllocator* allocator_of(at::Device device) {
  if (device.is_cpu()) return nullptr;
  try {
    return dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  } catch (const c10::Error&) {  // none is registered
    return nullptr;
  }
}

/// Returns what the device's library tells where its allocator tells nothing.
PluginMemory told_by_library(at::Device device) {
  if (device.type() != at::kPrivateUse1) return {};
  return plugin_memory(device.has_index() ? device.index() : at::DeviceIndex{0});
}

/// A group that takes memory of the device itself.
class SameGroup : public comm::OverHost, public comm::AnyMemory {
 public:
  using OverHost::OverHost;
  comm::WorkPtr start(comm::Request request) override {
    return host().start(std::move(request));
  }
  std::unique_ptr<comm::Communicator> split(int color, int key,
                                            std::string name) override {
    return host().split(color, key, std::move(name));
  }
  bool transfers_in_order() const override { return host().transfers_in_order(); }
};

void check_function(at::Device device, const std::string& setting, const char* function,
                    const std::function<void()>& use) {
  if (device.type() != at::kPrivateUse1) return;
  try {
    use();
  } catch (const c10::Error& error) {
    fail_config("device",
                "{} needs {} of the guard of the device '{}', but this function fails: "
                "{}; leave the setting out, or have the plug-in implement the function",
                setting, function, c10::get_privateuse1_backend(),
                error.what_without_backtrace());
  }
}

}  // namespace

int ordinal(int local_rank, int devices, const std::vector<std::string>& firsts) {
  const auto local_ranks = static_cast<int>(firsts.size());
  const std::set<std::string> distinct(firsts.begin(), firsts.end());
  if (distinct.size() == firsts.size() && !distinct.contains("")) return 0;
  if (devices >= local_ranks) return local_rank;
  if (devices == 1) return 0;
  fail_config("device",
              "there are {} ranks on this machine, and each rank sees {} devices; start "
              "one rank per device, or set run.device = \"cpu\"",
              local_ranks, devices);
}

void check_distinct(const std::vector<std::string>& identities) {
  std::map<std::string, size_t> owners;
  for (size_t rank = 0; rank < identities.size(); ++rank) {
    const auto [owner, fresh] = owners.try_emplace(identities[rank], rank);
    if (fresh || identities[rank].empty()) continue;
    fail_config(
        "device",
        "ranks {} and {} of this machine have the same device or MIG slice ({}); "
        "start one rank per device. In CUDA_VISIBLE_DEVICES each rank's own comes "
        "first, or all ranks have one order",
        owner->second, rank, identities[rank]);
  }
}

void take(at::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

at::Device choose(const std::string& wanted, comm::Communicator& node) {
  const at::DeviceType kind = present(wanted);
  if (kind == at::kCPU) return at::kCPU;
  const int devices = at::accelerator::deviceCount();
  const auto identity = [&](int index) {
    return kind_of(at::Device(kind)).identity(static_cast<at::DeviceIndex>(index));
  };
  const int mine = ordinal(node.rank(), devices, node.gather_strings(identity(0)));
  check_distinct(node.gather_strings(identity(mine)));
  const at::Device device(kind, static_cast<at::DeviceIndex>(mine));
  take(device);
  return device;
}

std::string name(at::Device device) { return kind_of(device).name(device.index()); }

void check(at::Device device) { kind_of(device).check(device.index()); }

std::string unused_gpus() {
  if (!fs::exists("/dev/nvidiactl")) return {};
  const std::string& obstacle = cuda_library().obstacle;
  return obstacle.empty() ? "LibTorch finds no usable GPU (nvidia-smi shows the GPUs)"
                          : obstacle;
}

std::unique_ptr<comm::Communicator> group_for(at::Device device, comm::Communicator& host,
                                              const layout::GroupUse& use) {
  if (dynamic_cast<const comm::AnyMemory*>(&host) != nullptr) {
    return std::make_unique<SameGroup>(comm::borrowed(host));
  }
  const std::shared_ptr<comm::DeviceApi> api = kind_of(device).collectives();
  if (api == nullptr) {
    auto staged = comm::through_host(host, copies_of(device));
    TensorCollectives* const of_tensors = plugin_groups(device);
    const bool played = dynamic_cast<const comm::Played*>(&host) != nullptr;
    if (of_tensors == nullptr || played) return staged;
    return std::make_unique<TensorGroup>(*of_tensors, host, std::move(staged));
  }
  comm::DeviceOptions options;
  options.compute_stream = [device] { return current_stream(device).native_handle(); };
  options.uses = use.uses;
  options.most_blocks = use.beside ? kBlocksBeside : 0;
  options.opens_later = true;
  return std::make_unique<comm::DeviceCommunicator>(api, comm::borrowed(host),
                                                    device.index(), options);
}

std::vector<std::string> prepare_collectives(at::Device device, bool repeats,
                                             comm::Communicator& world,
                                             const comm::Communicator& node) {
  if (device.is_cpu() || world.size() == 1) return {};
  const std::shared_ptr<comm::DeviceApi> api = kind_of(device).collectives();
  if (api == nullptr) return {};
  const NcclSettings given = nccl_settings();
  check_same_settings(given, world);
  std::vector<std::string> warnings = api->prepare(repeats);
  if (node.size() == world.size()) return warnings;
  for (std::string& warning : check_plugins(given)) {
    warnings.push_back(std::move(warning));
  }
  return warnings;
}

namespace {

/// Returns those of the groups that use the device's own collectives.
std::vector<comm::DeviceCommunicator*> of_devices(const Groups& groups) {
  std::vector<comm::DeviceCommunicator*> all;
  for (const auto& group : groups) {
    auto* const found = dynamic_cast<comm::DeviceCommunicator*>(group.get());
    if (found != nullptr) all.push_back(found);
  }
  return all;
}

}  // namespace

void open_groups(const Groups& groups) {
  comm::DeviceCommunicator::open(of_devices(groups));
}

std::optional<uint64_t> bytes_of_groups(const Groups& groups) {
  uint64_t bytes = 0;
  for (const comm::DeviceCommunicator* group : of_devices(groups)) {
    const std::optional<uint64_t> told = group->device_bytes();
    if (!told) return std::nullopt;
    bytes += *told;
  }
  return bytes;
}

std::string describe_sums(at::Device device, const comm::Communicator& world) {
  if (device.is_cpu() || world.size() == 1) return comm::describe_sums(world);
  const std::shared_ptr<comm::DeviceApi> api = kind_of(device).collectives();
  if (api != nullptr) return api->describe();
  TensorCollectives* const of_tensors = plugin_groups(device);
  return of_tensors == nullptr ? comm::describe_sums(world) + ", through the host"
                               : of_tensors->describe();
}

c10::Event mark(at::Device device) {
  c10::Event event(device.type());
  event.record(current_stream(device));
  return event;
}

c10::Stream side_stream(at::Device device) {
  try {
    return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  } catch (const c10::Error&) {  // the plug-in has no such function
    return current_stream(device);
  }
}

void order(const c10::Event& mark) { mark.block(current_stream(mark.device())); }

void wait(const c10::Event& mark, const std::function<void()>& look) {
  take(mark.device());
  comm::wait_for_device([&] { return mark.query(); }, look);
}

std::optional<Memory> memory(at::Device device) {
  if (c10::DeviceAllocator* const allocator = allocator_of(device)) {
    const auto memory = told<Memory>([&] {
      const auto [free, total] = allocator->getMemoryInfo(device.index());
      return Memory{free, total};
    });
    if (memory) return memory;
  }
  const PluginMemory memory = told_by_library(device);
  if (memory.total == 0) return std::nullopt;
  return Memory{memory.total - std::min(memory.held, memory.total), memory.total};
}

namespace {

/// Returns one of the allocator's counts of the bytes that tensors have on the device; 0
/// if nothing counts them.
int64_t count_of_bytes(at::Device device, int64_t c10::CachingAllocator::Stat::* count,
                       size_t PluginMemory::* of_library) {
  c10::DeviceAllocator* const allocator = allocator_of(device);
  if (allocator == nullptr) {
    return static_cast<int64_t>(told_by_library(device).*of_library);
  }
  if (!allocator->initialized()) return 0;
  const c10::DeviceIndex index = device.has_index() ? device.index() : 0;
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return told<int64_t>([&] {
           return allocator->getDeviceStats(index).allocated_bytes.at(kAll).*count;
         })
      .value_or(0);
}

}  // namespace

int64_t peak_bytes(at::Device device) {
  return count_of_bytes(device, &c10::CachingAllocator::Stat::peak, &PluginMemory::peak);
}

int64_t used_bytes(at::Device device) {
  return count_of_bytes(device, &c10::CachingAllocator::Stat::current,
                        &PluginMemory::used);
}

void check_side_streams(at::Device device, const std::string& setting) {
  check_function(device, setting, "getStreamFromGlobalPool", [&] {
    c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  });
}

void check_timing(at::Device device, const std::string& setting) {
  check_function(device, setting, "elapsedTime", [&] {
    c10::Event first(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    c10::Event last(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    first.record(current_stream(device));
    last.record(current_stream(device));
    last.synchronize();
    first.elapsedTime(last);
  });
}

BackwardHere::BackwardHere()
    : before_(c10::AutogradState::get_tls_state().get_multithreading_enabled()) {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

BackwardHere::~BackwardHere() {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(before_);
}

}  // namespace longhaul::device
