#pragma once

#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/cluster/health/findings.h"

namespace longhaul::cluster {

/// What a needed path is, which decides how a node looks at it.
enum class PathRole {
  Run,          ///< the run's directory: known by the run's identity
  Checkpoints,  ///< where checkpoints are written: known by the marker of their run
  Input,        ///< a file, or a directory that is not empty, from which is read
  Room          ///< a directory of the node's own in which files are made
};

/// A path that a run needs on each of its nodes.
struct NeededPath {
  std::string what;  ///< for people: "the run's directory"
  fs::path path;     ///< absolute
  PathRole role = PathRole::Input;
};
void to_json(Json& json, const NeededPath& path);
/// Throws Json::exception or InputError for anything else than a needed path.
void from_json(const Json& json, NeededPath& path);

/// How one node sees one needed path.
struct PathView {
  bool known = true;  ///< false: the node could not find out
  std::string seen;   ///< what stands there, in words that nodes compare; empty: nothing
  std::string trouble;  ///< why the run cannot use the path here, whatever others see
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PathView, known, seen, trouble)

/// How one node sees the needed paths, in their order.
struct NodePaths {
  std::string node;
  std::vector<PathView> views;
};

/// Looks at the paths on this machine, from a child process with a deadline. A path for
/// which no answer comes in time is not known. Must not be called in a process whose
/// other threads may hold locks.
std::vector<PathView> view_paths(const std::vector<NeededPath>& needed,
                                 double limit_seconds);

/// Compares what nodes see. A node is at fault if it cannot use the path and most nodes
/// can. It is also at fault if most nodes see the same and it sees something else; of two
/// nodes, the one that sees nothing. What most nodes lack is a problem of the job, for
/// which no node is named.
Findings judge_paths(const std::vector<NeededPath>& needed,
                     const std::vector<NodePaths>& nodes);

}  // namespace longhaul::cluster
