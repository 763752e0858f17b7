#include "longhaul/cluster/health/gpu_health.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "longhaul/base/file.h"

namespace longhaul::cluster {
namespace {

// The part of nvml.h that is used here. NVIDIA keeps it unchanged within a major version
// of the library.
using Device = void*;
struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
constexpr int kUncorrected = 1;  // nvmlMemoryErrorType_t
constexpr int kVolatile = 0;     // nvmlEccCounterType_t
constexpr int kAggregate = 1;
constexpr int kDegrees = 0;  // NVML_TEMPERATURE_GPU
constexpr size_t kMaxLogBytes = size_t{8} << 20;
constexpr unsigned kMaxDevices = 64;

/// A loaded library and its functions by name.
class Library {
 public:
  explicit Library(const std::string& name)
      : handle_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  explicit Library(void* handle) : handle_(handle) {}
  void* handle() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

  /// Calls a function that returns 0 for success. Returns false if the function fails or
  /// is absent.
  template <class... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    using Function = int (*)(Arguments...);
    const auto function = reinterpret_cast<Function>(::dlsym(handle_, name));
    return function != nullptr && function(arguments...) == 0;
  }

 private:
  // The library is never unloaded, since a driver's library may leave threads behind.
  void* handle_;
};

std::string text_of(const Library& nvml, const char* function, Device device) {
  std::array<char, 96> text{};
  const bool good =
      nvml.call(function, device, text.data(), static_cast<unsigned>(text.size() - 1));
  return good ? text.data() : "";
}

GpuState use_of(const Library& nvml, Device device) {
  GpuState state;
  state.name = text_of(nvml, "nvmlDeviceGetName", device);
  if (Memory memory{}; nvml.call("nvmlDeviceGetMemoryInfo", device, &memory)) {
    state.memory_used_bytes = memory.used;
    state.memory_total_bytes = memory.total;
  }
  if (Utilization now{}; nvml.call("nvmlDeviceGetUtilizationRates", device, &now)) {
    state.busy = 0.01 * now.gpu;
  }
  return state;
}

GpuState state_of(const Library& nvml, Device device) {
  GpuState state = use_of(nvml, device);
  state.uuid = text_of(nvml, "nvmlDeviceGetUUID", device);
  unsigned long long count = 0;
  if (nvml.call("nvmlDeviceGetTotalEccErrors", device, kUncorrected, kVolatile, &count)) {
    state.uncorrected_errors = count;
  }
  if (nvml.call("nvmlDeviceGetTotalEccErrors", device, kUncorrected, kAggregate,
                &count)) {
    state.uncorrected_errors_ever = count;
  }
  unsigned corrected = 0;
  unsigned uncorrected = 0;
  unsigned pending = 0;
  unsigned failure = 0;
  if (nvml.call("nvmlDeviceGetRemappedRows", device, &corrected, &uncorrected, &pending,
                &failure)) {
    state.reset_pending = pending != 0;
    state.remap_failed = failure != 0;
  }
  unsigned degrees = 0;
  if (nvml.call("nvmlDeviceGetTemperature", device, kDegrees, &degrees)) {
    state.celsius = static_cast<int>(degrees);
  }
  return state;
}

std::vector<GpuState> read_devices(const Library& nvml,
                                   GpuState (*read)(const Library&, Device)) {
  std::vector<GpuState> gpus;
  unsigned count = 0;
  nvml.call("nvmlDeviceGetCount_v2", &count);
  for (unsigned i = 0; i < std::min(count, kMaxDevices); ++i) {
    Device device = nullptr;
    if (nvml.call("nvmlDeviceGetHandleByIndex_v2", i, &device)) {
      gpus.push_back(read(nvml, device));
    } else {
      // The driver counts the device and cannot reach it. This is so after Xid 79, for
      // example.
      gpus.emplace_back().reachable = false;
    }
  }
  return gpus;
}

/// Returns the kernel's log if it may be read. Each read gives one record.
std::string kernel_log() {
  const Descriptor file(::open("/dev/kmsg", O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string log;
  std::array<char, 8192> record{};
  while (file.is_open() && log.size() < kMaxLogBytes) {
    const ssize_t count = ::read(file.get(), record.data(), record.size());
    if (count < 0 && errno == EPIPE) continue;  // records were overwritten meanwhile
    if (count <= 0) break;
    log.append(record.data(), static_cast<size_t>(count));
  }
  return log;
}

}  // namespace

std::optional<std::vector<GpuState>> read_gpus(const std::string& library,
                                               std::string& why) {
  const Library nvml(library);
  if (!nvml) {
    why = "not present";
    return std::nullopt;
  }
  if (!nvml.call("nvmlInit_v2")) {
    why = fmt::format("{} is installed, but no driver answers", library);
    return std::nullopt;
  }
  std::vector<GpuState> gpus = read_devices(nvml, state_of);
  nvml.call("nvmlShutdown");
  return gpus;
}

std::optional<GpuUse> GpuUse::open(const std::string& library) {
  const Library nvml(library);
  if (!nvml || !nvml.call("nvmlInit_v2")) return std::nullopt;
  unsigned count = 0;
  if (!nvml.call("nvmlDeviceGetCount_v2", &count) || count == 0) return std::nullopt;
  return GpuUse(nvml.handle());
}

std::vector<GpuState> GpuUse::read() const {
  return read_devices(Library(library_), use_of);
}

std::vector<XidLine> find_xids(const std::string& log) {
  std::vector<XidLine> found;
  // A line reads "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."
  constexpr std::string_view kMark = "NVRM: Xid (";
  for (size_t at = 0; (at = log.find(kMark, at)) != std::string::npos;
       at += kMark.size()) {
    const std::string line = log.substr(at, log.find('\n', at) - at);
    const size_t number = line.find("): ");
    if (number == std::string::npos) continue;
    found.push_back({std::atoi(line.c_str() + number + 3), line});
  }
  return found;
}

bool is_fatal_xid(int number) {
  // NVIDIA's catalogue: double-bit ECC, row remapping and containment, NVLink, a device
  // off the bus, GSP time-outs.
  constexpr std::array kFatal = {48, 62, 64, 74, 79, 94, 95, 119, 120, 136, 140, 143};
  return std::ranges::find(kFatal, number) != kFatal.end();
}

HealthCheck judge_gpus(const std::vector<GpuState>& gpus,
                       const std::vector<XidLine>& xids) {
  HealthCheck check;
  std::string problems;
  const auto say = [&](const std::string& text) {
    problems += (problems.empty() ? "" : "; ") + text;
  };
  Json list = Json::array();
  for (size_t i = 0; i < gpus.size(); ++i) {
    const GpuState& gpu = gpus[i];
    const std::string who =
        fmt::format("GPU {} ({})", i, gpu.reachable ? gpu.name : "unreachable");
    if (gpu.uncorrected_errors.value_or(0) > 0) {
      say(
          fmt::format("{} has {} uncorrected ECC errors; reset the GPU, and replace it "
                      "if the errors come back",
                      who, *gpu.uncorrected_errors));
    }
    if (!gpu.reachable) say(who + " does not answer; restart or replace the node");
    if (gpu.remap_failed.value_or(false)) {
      say(who + " has no spare memory rows left; replace the GPU");
    }
    if (gpu.reset_pending.value_or(false)) {
      say(who + " must be reset to replace bad memory rows; reset the GPU");
    }
    Json one = {{"name", gpu.name},
                {"uuid", gpu.uuid},
                {"memory_used_bytes", gpu.memory_used_bytes},
                {"memory_total_bytes", gpu.memory_total_bytes}};
    if (gpu.busy) one["busy"] = *gpu.busy;
    if (gpu.celsius) one["celsius"] = *gpu.celsius;
    if (gpu.uncorrected_errors) one["uncorrected_errors"] = *gpu.uncorrected_errors;
    if (gpu.uncorrected_errors_ever) {
      one["uncorrected_errors_ever"] = *gpu.uncorrected_errors_ever;
    }
    list.push_back(std::move(one));
  }
  for (const XidLine& xid : xids) {
    if (is_fatal_xid(xid.number)) say("the kernel's log has '" + xid.text + "'");
  }
  check.text = fmt::format("{} x {}, no uncorrected ECC errors, {} Xid lines",
                           gpus.size(), gpus.empty() ? "" : gpus[0].name, xids.size());
  if (!problems.empty()) check = HealthCheck::failed(std::move(problems));
  check.values = {{"devices", std::move(list)}, {"xids", xids.size()}};
  return check;
}

HealthCheck check_gpus(const std::string& library) {
  std::string why;
  const auto gpus = read_gpus(library, why);
  if (gpus && !gpus->empty()) return judge_gpus(*gpus, find_xids(kernel_log()));
  HealthCheck check;
  check.result = HealthResult::Skipped;
  check.text = gpus ? "no device" : why;
  return check;
}

}  // namespace longhaul::cluster
