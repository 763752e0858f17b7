#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace longhaul::device {

/// A kernel that the compiler of a device has made, for one key: an operation with the
/// shapes and dtypes of its arguments.
struct CompiledKey {
  std::string name;  ///< operation and shapes, as the compiler got them
  double seconds = 0.0;
  int64_t bytes = 0;  ///< of the kernel's file

  /// Returns the name's first word, the operation.
  std::string operation() const { return name.substr(0, name.find(' ')); }
};

/// The name of the function by which a plug-in lists the keys that its compiler made for
/// this process since the last call: `extern "C" void longhaul_device_compiled(
/// std::vector<CompiledKey>& keys)`. What came from a cache is not listed.
inline constexpr const char* kPluginCompiled = "longhaul_device_compiled";

/// Returns whether the plug-in of the process lists what its compiler makes.
bool lists_compiled_keys();

/// Returns what the plug-in's compiler has made since the last call; empty if it lists
/// nothing.
std::vector<CompiledKey> compiled_keys();

}  // namespace longhaul::device
