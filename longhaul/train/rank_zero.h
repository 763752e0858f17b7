#pragma once

#include <functional>
#include <string>

#include "longhaul/comm/communicator.h"

namespace longhaul::train {

/// Runs `work` on rank 0 and gives its result to every rank; an Error that it throws is
/// thrown on every rank with the same kind and text. Collective.
std::string on_rank_zero(comm::Communicator& world,
                         const std::function<std::string()>& work);

/// Runs `work` on every rank; if it throws an Error on any, every rank throws the error
/// of the lowest such rank. Collective.
void on_all_ranks(comm::Communicator& world, const std::function<void()>& work);

}  // namespace longhaul::train
