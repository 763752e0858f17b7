#pragma once

#include <string>
#include <vector>

#include "bench/control_ranks.h"

namespace longhaul::bench {

// Made-up nodes and ranks, for more of them than this machine can hold: one process
// speaks for many nodes, over one connection for each.

/// Makes a file by which launcher, players and bench talk about a start: "go" (ranks may
/// begin), "kill" (a rank dies), "dead" and "saved".
void put_mark(const fs::path& dir, const char* what, int64_t start);

/// Returns the command that runs on a node in place of the agent's command `of_agent`:
/// the player of many nodes on the first of its nodes, a sleep on the others.
std::vector<std::string> player_words(const std::string& program, const fs::path& dir,
                                      const Size& size, const std::string& node,
                                      const std::vector<std::string>& of_agent);
int play(const fs::path& dir, const Size& size, int first, const std::string& host,
         int port);
/// Stands for mpirun over played ranks.
int launch_played(const fs::path& dir);

}  // namespace longhaul::bench
