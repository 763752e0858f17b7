#pragma once

#include <functional>
#include <string>

#include "longhaul/comm/communicator.h"

namespace longhaul::comm {

/// Runs `work` on rank 0 and returns its result on every rank. An Error that `work`
/// throws is thrown on every rank with the same kind and text. Collective.
std::string on_rank_zero(Communicator& group, const std::function<std::string()>& work);

/// Runs `work` on every rank. If `work` throws an Error on any rank, every rank throws
/// the error of the lowest such rank. Collectives within `work` must not depend on
/// anything that can fail on one rank alone. Collective.
void on_all_ranks(Communicator& group, const std::function<void()>& work);

}  // namespace longhaul::comm
