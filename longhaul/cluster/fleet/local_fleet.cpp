#include "longhaul/cluster/fleet/local_fleet.h"

#include <utility>

namespace longhaul::cluster {

LocalFleet::LocalFleet(std::string node, const NodeDirectories& directories)
    : watch_(std::move(node), directories.records()) {
  make_directories(directories);
}

}  // namespace longhaul::cluster
