#pragma once

#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/config/run_config.h"

namespace longhaul {

/// How the run uses a path that the settings name.
enum class PathUse {
  Reads,           ///< each rank reads it in each start
  ReadsSometimes,  ///< some ranks read it, or some starts, or it lies in an image
  Writes,          ///< a directory that the run makes and writes
  OfNodes          ///< agents look at it on their nodes; no rank does
};

struct NamedPath {
  const char* key;  ///< "data.train"
  fs::path path;
  PathUse use = PathUse::Reads;
  bool may_be_pattern = false;  ///< "*", "?" and "[" stand for other text
};

/// Returns every path and address that the settings name, in the order of the reference.
/// Keys that are not given are left out.
std::vector<NamedPath> named_paths(const RunConfig& config);

}  // namespace longhaul
