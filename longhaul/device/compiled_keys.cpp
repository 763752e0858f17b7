#include "longhaul/device/compiled_keys.h"

#include "longhaul/device/plugin.h"

namespace longhaul::device {

bool lists_compiled_keys() { return plugin_function(kPluginCompiled) != nullptr; }

std::vector<CompiledKey> compiled_keys() {
  std::vector<CompiledKey> keys;
  using Compiled = void(std::vector<CompiledKey>&);
  void* const symbol = plugin_function(kPluginCompiled);
  if (symbol != nullptr) reinterpret_cast<Compiled*>(symbol)(keys);
  return keys;
}

}  // namespace longhaul::device
