#pragma once

#include <string>

#include "longhaul/cluster/fleet/fleet.h"

namespace longhaul::bench {

// What stands for nodes and ranks under a real supervisor (control.cpp).

struct Size {
  int nodes = 0;
  int per_node = 0;
  bool played = false;
  int ranks() const { return nodes * per_node; }
};

/// A number of this machine's loopback, which every resolver knows.
std::string node_name(int node);
cluster::NodeDirectories directories_of(const fs::path& dir, const std::string& node);
void sleep_seconds(double seconds);
/// "pp 0 dp 3 cp 0 tp 1": a node's ranks share a group of tensor parallelism.
std::string place(int rank, const Size& size);

/// Stands for mpirun: starts all ranks, each a process that trains nothing and keeps a
/// record as a real one does, and ends when the last has ended.
int start_ranks(const fs::path& dir, const Size& size);
/// A node's agent, as `longhaul agent` runs it, with these options.
int be_agent(int count, char** words);

}  // namespace longhaul::bench
