#pragma once

#include <string>
#include <vector>

#include "longhaul/cluster/watch/observed.h"

namespace longhaul::cluster {

/// Why nothing moves: which ranks the others wait for, in one line for people.
struct HangVerdict {
  std::vector<int> ranks;  ///< at fault, lowest first; empty: none can be named
  std::string text;
};

/// Judges ranks of which none moves. A rank that waits in a collective points at the
/// members of its group that have not entered it; those at whom others point and who
/// wait for nobody themselves (stopped, busy, or in no collective) are at fault. Where
/// all have entered what they wait for, the network between them is; where they wait for
/// each other in a circle, their calls differ. Transfers between pipeline stages point
/// at the stages beside.
HangVerdict judge_hang(const RankList& ranks);

}  // namespace longhaul::cluster
