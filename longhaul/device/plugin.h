#pragma once

#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::device {

/// Loads a shared library that brings LibTorch another device: as it is loaded it
/// registers a backend for PrivateUse1 (c10::register_privateuse1_backend, an allocator,
/// a guard, the hooks and the operations). Afterwards at::Device(at::kPrivateUse1, n)
/// works. Call it before the process's first backward, which counts the devices for good.
/// A process has one such device: loading the same file again does nothing.
///
/// ConfigError where the file is missing, is no shared library, cannot be loaded,
/// registers no device or a part of one, shows no device, or lacks operations or
/// functions of its guard and hooks; those are named, operations with the verb that needs
/// them. A device whose library registers no name for it (some do so from Python) is
/// "plugin". A library runs as part of the program: load none that is not trusted.
void load_plugin(const fs::path& path);

bool plugin_is_loaded();

/// What a plug-in exports that has collectives of its own.
inline constexpr const char* kPluginCollectives = "longhaul_device_collectives";

/// A function that the loaded plug-in exports, by its C name; null where no plug-in is
/// loaded or it has no such function.
void* plugin_function(const char* name);

/// Operations that the device of the process has neither a kernel of its own for nor a
/// fallback, as "aten::mm (train, eval, generate)"; empty when all is there.
std::vector<std::string> missing_operations();

}  // namespace longhaul::device
