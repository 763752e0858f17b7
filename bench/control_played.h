#pragma once

#include <string>
#include <vector>

#include "bench/control_ranks.h"

namespace longhaul::bench {

// Nodes and ranks that are made up, for more of them than this machine can hold: a
// process speaks for many nodes, over a connection for each.

/// What launcher, players and the bench tell each other: "go" (ranks may begin), "kill"
/// (one of them dies), "dead" and "saved", each of one start.
void put_mark(const fs::path& dir, const char* what, int64_t start);

/// The words that start on a node in place of `of_agent`: the player of many nodes, on
/// the first of them.
std::vector<std::string> player_words(const std::string& program, const fs::path& dir,
                                      const Size& size, const std::string& node,
                                      const std::vector<std::string>& of_agent);
int play(const fs::path& dir, const Size& size, int first, const std::string& host,
         int port);
/// Stands for mpirun over ranks that are played.
int launch_played(const fs::path& dir);

}  // namespace longhaul::bench
