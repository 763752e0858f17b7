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
/// if it finds no device, and if operations are missing. The error names what is missing,
/// and for an operation the verbs that need the operation. A device whose library
/// registers no name (some do so from Python) is called "plugin". A library runs as part
/// of the program: load only trusted ones.
void load_plugin(const fs::path& path);

/// Throws ConfigError, which names them, if functions of guard and hooks that every run
/// uses are missing. Uses the device `index`, which must be current for the thread.
void check_plugin(at::DeviceIndex index);

bool plugin_is_loaded();

/// The name of the function that a plug-in with collectives of its own exports.
inline constexpr const char* kPluginCollectives = "longhaul_device_collectives";

/// Returns a function that the loaded plug-in exports, by its C name; null if no
/// plug-in is loaded or the plug-in has no such function.
void* plugin_function(const char* name);

/// Returns the operations for which the device of the process has neither a kernel nor a
/// fallback, as "aten::mm (train, eval, generate)"; empty if nothing is missing.
std::vector<std::string> missing_operations();

}  // namespace longhaul::device
