#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/device/compiled_keys.h"

namespace longhaul::neuron {

/// Makes the folder `cache` of compiled kernels where it is absent. Throws ConfigError if
/// no file can be written there. With `only` nothing is written, and the folder must be
/// there.
void check_cache(const fs::path& cache, bool only);

/// A program `neuronx-cc` in a folder of its own, which the backend finds first in PATH.
/// It runs the real compiler and notes each key that it compiles.
class WatchedCompiler {
 public:
  /// `compiler` is the real one, `cache` the folder of compiled kernels. With `only` the
  /// program refuses to compile, with the operation's name. Throws ConfigError if the
  /// folder for temporary files cannot hold programs.
  WatchedCompiler(const std::string& compiler, const fs::path& cache, bool only);
  /// Removes the folder.
  ~WatchedCompiler();
  WatchedCompiler(const WatchedCompiler&) = delete;
  WatchedCompiler& operator=(const WatchedCompiler&) = delete;

  const fs::path& folder() const { return folder_; }
  /// Returns what was compiled since the last call.
  std::vector<device::CompiledKey> compiled();

 private:
  fs::path folder_;
  fs::path record_;
  size_t read_ = 0;  ///< bytes of the record that compiled() has returned
};

/// Returns a key of a line of the record: "BEGAN ENDED BYTES MODULE", with times in
/// seconds. Numbers that make no sense are 0.
device::CompiledKey key_of_line(std::string_view line);

}  // namespace longhaul::neuron
