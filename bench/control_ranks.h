#pragma once

#include <string>

#include "longhaul/cluster/fleet/fleet.h"
#include "longhaul/run/place.h"

namespace longhaul::bench {

// Stand-ins for nodes and ranks under a real supervisor (control.cpp).

struct Size {
  int nodes = 0;
  int per_node = 0;
  bool played = false;
  int ranks() const { return nodes * per_node; }
};

/// Returns a numeric address of this machine's loopback interface.
std::string node_name(int node);
cluster::NodeDirectories directories_of(const fs::path& dir, const std::string& node);
void sleep_seconds(double seconds);
/// Returns a rank's place. The ranks of a node share a group of tensor parallelism.
run::Place place(int rank, const Size& size);

/// Stands for mpirun: starts all ranks, each a process that trains nothing but keeps a
/// record as a real rank does, and returns when the last rank has ended.
int start_ranks(const fs::path& dir, const Size& size);
/// Runs a node's agent, as `longhaul agent` does, with these options.
int be_agent(int count, char** words);

}  // namespace longhaul::bench
