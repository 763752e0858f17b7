#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::device {

/// Loads a shared library that gives LibTorch another device. While it is loaded the
/// library registers a backend for PrivateUse1 (c10::register_privateuse1_backend, an
/// allocator, a guard, the hooks and the operations). Afterwards
/// at::Device(at::kPrivateUse1, n) works. Must be called before the process's first
/// backward, at which LibTorch counts the devices once and for all. A process has one
/// such device: loading the same file again does nothing.
///
/// Throws ConfigError if the file is missing, is no shared library or cannot be
/// loaded. Also throws if the library registers no device or only a part of a device,
/// or if it finds no device. The error names what is missing. A device whose library
/// registers no name (some do so from Python) is called "plugin". A library runs as part
/// of the program: load only trusted ones.
void load_plugin(const fs::path& path);

/// Throws ConfigError, which names them, if functions of guard and hooks that every run
/// uses are missing. Uses the device `index`, which must be current for the thread.
void check_plugin(at::DeviceIndex index);

/// Makes a library that this project has opened, and that has registered a device, the
/// plug-in of the process. Throws ConfigError as load_plugin does.
void adopt_plugin(void* handle, const fs::path& path);

/// Throws ConfigError if operations of a verb are missing. The error names each with the
/// verbs that need it. With `fallbacks_count` the device's fallback will do.
void check_plugin_operations(bool fallbacks_count);

bool plugin_is_loaded();

/// The name of the function by which a plug-in lists the operations that ran on the CPU
/// since its last call: `extern "C" void longhaul_device_fallbacks(
/// std::vector<std::string>& names)`.
inline constexpr const char* kPluginFallbacks = "longhaul_device_fallbacks";

/// Returns the names of the operations that ran on the CPU since the last call, as the
/// plug-in lists them; empty if it lists none, or if no plug-in is loaded.
std::vector<std::string> plugin_fallbacks();

/// What a plug-in tells of the memory of a device, in bytes; 0: it does not tell.
struct PluginMemory {
  size_t total = 0;  ///< all memory of the device
  size_t held = 0;   ///< held by this process, for tensors that are there or will come
  size_t used = 0;   ///< of the tensors that are there
  size_t peak = 0;   ///< the most that tensors had at once
};

/// The name of the function by which a plug-in without a c10::DeviceAllocator tells its
/// memory: `extern "C" void longhaul_device_memory(int index,
/// longhaul::device::PluginMemory* memory)`.
inline constexpr const char* kPluginMemory = "longhaul_device_memory";

/// Returns what the plug-in tells of the memory of its device `index`; zeros if it has no
/// such function, or if no plug-in is loaded.
PluginMemory plugin_memory(at::DeviceIndex index);

/// Calls the function by which a plug-in ends its work, `extern "C" void
/// longhaul_device_close()`, at the end of the process. Does nothing if no plug-in is
/// loaded or the plug-in has no such function.
void close_plugin();

/// The name of the function that a plug-in with collectives of its own exports.
inline constexpr const char* kPluginCollectives = "longhaul_device_collectives";

/// Returns a function that the loaded plug-in exports, by its C name; null if no
/// plug-in is loaded or the plug-in has no such function.
void* plugin_function(const char* name);

/// Returns the operations for which the device of the process has no kernel (and, with
/// `fallbacks_count`, no fallback either), as "aten::mm (train, eval, generate)"; empty
/// if nothing is missing.
std::vector<std::string> missing_operations(bool fallbacks_count);

}  // namespace longhaul::device
