#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/config/load.h"
#include "tests/support/message_of.h"

namespace longhaul {

/// A configuration with the required keys only. Tests count its lines.
inline constexpr std::string_view kSmallest = R"([run]
dir = "runs/a"
steps = 1000
[model]
config = "models/llama"
[data]
seq_len = 128
train = [{ path = "data/wiki" }]
[batch]
global_size = 8
[optimizer]
lr = 1e-3
)";

/// Returns the error message for kSmallest followed by `more`, with `--set` arguments.
inline std::string refused(const std::string& more, std::vector<std::string> sets = {}) {
  return message_of<ConfigError>(
      [&] { parse_run_config(std::string(kSmallest) + more, "run.toml", sets); });
}

inline LoadedConfig accepted(const std::string& more,
                             std::vector<std::string> sets = {}) {
  return parse_run_config(std::string(kSmallest) + more, "run.toml", sets);
}

inline fs::path source_dir() {
  const char* dir = std::getenv("LONGHAUL_SOURCE");
  return dir ? fs::path(dir) : fs::current_path();
}

}  // namespace longhaul
