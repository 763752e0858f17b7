#include "longhaul/device/plugin.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceType.h>
#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <fstream>

#include "longhaul/base/error.h"
#include "longhaul/base/missing_path.h"

namespace longhaul::device {
namespace {

constexpr auto kPlugin = c10::DeviceType::PrivateUse1;
/// The name of a device if its library registers no name.
constexpr const char* kUnnamed = "plugin";

/// The plug-in of the process.
struct Loaded {
  void* handle = nullptr;
  fs::path path;
  bool is_own = false;  ///< a library of this project, not of run.device_plugin
};

Loaded& loaded() {
  static Loaded plugin;
  return plugin;
}

[[noreturn]] void fail_plugin(const fs::path& path, const std::string& what) {
  fail_config("device", "{}: {}",
              loaded().is_own ? path.string()
                              : fmt::format("run.device_plugin = \"{}\"", path.string()),
              what);
}

void check_is_library(const fs::path& path) {
  if (!fs::exists(path)) fail_plugin(path, missing_path(path));
  Elf64_Ehdr head{};
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(&head), sizeof(head));
  if (!fs::is_regular_file(path) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) {
    fail_plugin(
        path,
        "the file is not a shared library (an ELF file); name the .so of the device");
  }
  // The loader would crash on a file that is cut short.
  const auto size = static_cast<uint64_t>(fs::file_size(path));
  file.seekg(static_cast<std::streamoff>(head.e_phoff));
  for (int i = 0; file && i < head.e_phnum; ++i) {
    Elf64_Phdr segment{};
    file.read(reinterpret_cast<char*>(&segment), sizeof(segment));
    if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset) {
      fail_plugin(path, fmt::format("the library is cut short: it has {} bytes, but "
                                    "needs {} bytes at byte {}; copy it again",
                                    size, segment.p_filesz, segment.p_offset));
    }
  }
}

enum Verb : unsigned { kTrain = 1, kEval = 2, kGenerate = 4 };

struct Needed {
  const char* name;
  const char* overload;
  unsigned verbs;
};

constexpr unsigned kAll = kTrain | kEval | kGenerate;
constexpr unsigned kReads = kEval | kGenerate;

/// Operations that a device must implement under these names. Operations that LibTorch
/// composes of them are not listed.
constexpr Needed kNeeded[] = {
    {"aten::empty", "memory_format", kAll},
    {"aten::empty_strided", "", kAll},
    {"aten::_local_scalar_dense", "", kAll},
    {"aten::as_strided", "", kAll},
    {"aten::view", "", kAll},
    {"aten::_reshape_alias", "", kAll},
    {"aten::fill_", "Scalar", kAll},
    {"aten::zero_", "", kAll},
    {"aten::add", "out", kAll},
    {"aten::sub", "out", kAll},
    {"aten::mul", "out", kAll},
    {"aten::div", "out", kAll},
    {"aten::pow", "Tensor_Scalar_out", kAll},
    {"aten::sum", "IntList_out", kAll},
    {"aten::mean", "out", kAll},
    {"aten::amax", "out", kAll},
    {"aten::exp", "out", kAll},
    {"aten::log", "out", kAll},
    {"aten::rsqrt", "out", kAll},
    {"aten::sqrt", "out", kTrain},
    {"aten::silu", "out", kAll},
    {"aten::gelu", "out", kAll},
    {"aten::gelu_backward", "grad_input", kTrain},
    {"aten::tanh", "out", kAll},
    {"aten::native_layer_norm", "", kAll},
    {"aten::native_layer_norm_backward", "", kTrain},
    {"aten::mm", "out", kAll},
    {"aten::bmm", "out", kAll},
    {"aten::addmm", "out", kAll},
    {"aten::_softmax", "out", kAll},
    {"aten::_log_softmax", "out", kReads},
    {"aten::index_select", "", kAll},
    {"aten::index", "Tensor_out", kAll},
    {"aten::index_add", "out", kTrain},
    {"aten::gather", "out", kTrain | kEval},
    {"aten::scatter_add", "out", kTrain},
    {"aten::where", "self", kAll},
    {"aten::masked_fill_", "Scalar", kAll},
    {"aten::arange", "start_out", kAll},
    {"aten::cat", "out", kAll},
    {"aten::isfinite", "", kTrain},
    {"aten::eq", "Scalar_out", kTrain | kEval},
};

std::string verbs_text(unsigned verbs) {
  std::vector<std::string> names;
  if ((verbs & kTrain) != 0) names.emplace_back("train");
  if ((verbs & kEval) != 0) names.emplace_back("eval");
  if ((verbs & kGenerate) != 0) names.emplace_back("generate");
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Returns true where the device has a kernel of the operation, or the operation has one
/// that is made of others for every device. The device's fallback, which may compute on
/// the CPU, is neither.
bool has_kernel(const c10::OperatorHandle& op) {
  using Key = c10::DispatchKey;
  for (const Key key :
       {Key::PrivateUse1, Key::CompositeImplicitAutograd, Key::CompositeExplicitAutograd,
        Key::CompositeExplicitAutogradNonFunctional}) {
    if (op.hasKernelForDispatchKey(key)) return true;
  }
  return false;
}

bool is_there(const Needed& needed, bool fallbacks_count) {
  const auto op = c10::Dispatcher::singleton().findSchema({needed.name, needed.overload});
  if (!op) return false;
  // The entry of the dispatch table may also be the device's fallback.
  return has_kernel(*op) || (fallbacks_count && op->hasComputedKernelForDispatchKey(
                                                    c10::DispatchKey::PrivateUse1));
}

/// Returns what a plug-in has not registered in its static initialisers, apart from its
/// backend's name.
std::vector<std::string> missing_parts() {
  std::vector<std::string> missing;
  if (!at::isPrivateUse1HooksRegistered()) {
    missing.emplace_back("hooks (at::RegisterPrivateUse1HooksInterface)");
  }
  if (!c10::impl::hasDeviceGuardImpl(kPlugin)) {
    missing.emplace_back("a guard (C10_REGISTER_GUARD_IMPL)");
  }
  return missing;
}

/// Throws unless the library has registered a whole device, and names the device if
/// the library has not. Some libraries name their device only from Python
/// (torch.utils.rename_privateuse1_backend), which is not called here.
void check_registered(const fs::path& path) {
  const bool named = c10::is_privateuse1_backend_registered();
  const std::vector<std::string> missing = missing_parts();
  if (missing.empty()) {
    if (!named) c10::register_privateuse1_backend(kUnnamed);
    return;
  }
  if (!named && missing.size() == 2) {
    fail_plugin(
        path,
        "the library was loaded, but registers no device: it needs "
        "c10::register_privateuse1_backend, and hooks and a guard for PrivateUse1, as it "
        "is loaded; longhaul does not run the Python package around the library");
  }
  fail_plugin(path,
              fmt::format("the library was loaded, but registers only a part of a "
                          "device: it lacks {}, which it must register as it is loaded",
                          fmt::join(missing, " and ")));
}

/// Returns the functions of guard and hooks that every run uses and that the plug-in
/// lacks: LibTorch's own versions throw. They are tried on the device `index`, and the
/// others are left alone.
std::vector<std::string> missing_functions(at::DeviceIndex index) {
  std::vector<std::string> missing;
  const auto try_out = [&](const char* what, const auto& use) {
    try {
      use();
    } catch (const c10::Error& error) {
      missing.push_back(fmt::format("{} ({})", what, error.what_without_backtrace()));
    }
  };
  const c10::impl::VirtualGuardImpl guard(kPlugin);
  const c10::Stream stream = guard.getStream(c10::Device(kPlugin, index));
  c10::Event event(kPlugin);
  try_out("record of the guard, for events", [&] { event.record(stream); });
  if (missing.empty()) {
    try_out("queryEvent of the guard", [&] { event.query(); });
    try_out("block of the guard", [&] { event.block(stream); });
    try_out("synchronizeEvent of the guard", [&] { event.synchronize(); });
  }
  try_out("hasPrimaryContext of the hooks",
          [&] { at::detail::getPrivateUse1Hooks().hasPrimaryContext(index); });
  try_out("getPinnedMemoryAllocator of the hooks",
          [] { at::empty({1}, at::TensorOptions(at::kByte).pinned_memory(true)); });
  if (plugin_function(kPluginCollectives) != nullptr) {
    try_out("getStreamNativeHandle of the guard, for its collectives",
            [&] { stream.native_handle(); });
  }
  return missing;
}

void check_device(const fs::path& path) {
  check_registered(path);
  const std::string name = c10::get_privateuse1_backend();
  if (c10::impl::getDeviceGuardImpl(kPlugin)->deviceCount() == 0) {
    fail_plugin(
        path,
        fmt::format("it brings the device type '{}', but finds no such device on this "
                    "machine; check its driver, and check which devices the job can see",
                    name));
  }
}

}  // namespace

std::vector<std::string> missing_operations(bool fallbacks_count) {
  std::vector<std::string> missing;
  for (const Needed& needed : kNeeded) {
    if (is_there(needed, fallbacks_count)) continue;
    const std::string overload = needed.overload;
    missing.push_back(fmt::format("{}{} ({})", needed.name,
                                  overload.empty() ? "" : "." + overload,
                                  verbs_text(needed.verbs)));
  }
  return missing;
}

void load_plugin(const fs::path& path) {
  check_is_library(path);
  const fs::path whole = fs::canonical(path);
  if (loaded().handle != nullptr) {
    if (loaded().path == whole) return;
    fail_plugin(path,
                fmt::format("{} is loaded already; a process can load only one plug-in",
                            loaded().path.string()));
  }
  // With an absolute path dlopen() does not search the library in other folders.
  void* handle = ::dlopen(whole.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    fail_plugin(path, fmt::format("it cannot be loaded: {}; build it for the LibTorch "
                                  "version of this program (longhaul --version)",
                                  ::dlerror()));
  }
  loaded() = {handle, whole};
  check_device(path);
}

void adopt_plugin(void* handle, const fs::path& path) {
  loaded() = {handle, path, /*is_own=*/true};
  check_device(path);
}

void check_plugin_operations(bool fallbacks_count) {
  const std::vector<std::string> operations = missing_operations(fallbacks_count);
  if (operations.empty()) return;
  fail_plugin(loaded().path,
              fmt::format("its device '{}' lacks operations: {}; register these "
                          "operations, or set run.device_fallback = \"warn\" where the "
                          "device has a fallback, which computes them on the CPU",
                          c10::get_privateuse1_backend(), fmt::join(operations, "; ")));
}

std::vector<std::string> plugin_fallbacks() {
  std::vector<std::string> names;
  using Fallbacks = void(std::vector<std::string>&);
  void* const symbol = plugin_function(kPluginFallbacks);
  if (symbol != nullptr) reinterpret_cast<Fallbacks*>(symbol)(names);
  return names;
}

PluginMemory plugin_memory(at::DeviceIndex index) {
  PluginMemory memory;
  using Tell = void(int, PluginMemory*);
  void* const symbol = plugin_function(kPluginMemory);
  if (symbol != nullptr) reinterpret_cast<Tell*>(symbol)(index, &memory);
  return memory;
}

void check_plugin(at::DeviceIndex index) {
  const std::vector<std::string> functions = missing_functions(index);
  if (functions.empty()) return;
  fail_plugin(loaded().path,
              fmt::format("its device '{}' lacks functions: {}; implement them",
                          c10::get_privateuse1_backend(), fmt::join(functions, "; ")));
}

bool plugin_is_loaded() { return loaded().handle != nullptr; }

void close_plugin() {
  void* const symbol = plugin_function("longhaul_device_close");
  if (symbol != nullptr) reinterpret_cast<void (*)()>(symbol)();
}

void* plugin_function(const char* name) {
  return loaded().handle == nullptr ? nullptr : ::dlsym(loaded().handle, name);
}

}  // namespace longhaul::device
