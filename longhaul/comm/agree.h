#pragma once

#include <functional>
#include <string>

#include "longhaul/comm/communicator.h"

namespace longhaul::comm {

/// Runs `work` on rank 0 and gives its result to every rank; an Error that it throws is
/// thrown on every rank with the same kind and text. Collective.
std::string on_rank_zero(Communicator& group, const std::function<std::string()>& work);

/// Runs `work` on every rank; if it throws an Error on any, every rank throws the error
/// of the lowest such rank. What `work` does together with others must not depend on
/// what can fail on one of them. Collective.
void on_all_ranks(Communicator& group, const std::function<void()>& work);

}  // namespace longhaul::comm
