#pragma once

#include <string>
#include <vector>

#include "longhaul/cluster/watch/observed.h"

namespace longhaul::cluster {

/// Why no rank moves: which ranks the others wait for, in one line for people.
struct HangVerdict {
  std::vector<int> ranks;  ///< ranks at fault, lowest first; empty: none can be named
  std::string text;
};

/// Judges ranks of which none moves. A rank that waits in a collective points at the
/// members of its group that have not entered the collective. A rank is at fault when
/// others point at it and it waits for no rank itself (stopped, busy, or in no
/// collective). If all ranks have entered what they wait for, the network is at fault; if
/// they wait for each other in a circle, their calls differ. A rank that waits in a
/// transfer between pipeline stages points at the stages before and behind its own.
HangVerdict judge_hang(const RankList& ranks);

}  // namespace longhaul::cluster
