#pragma once

#include <functional>
#include <string>
#include <type_traits>

#include "longhaul/comm/communicator.h"

namespace longhaul::comm {

/// Runs `work` on rank 0 and returns its result on every rank. An Error that `work`
/// throws is thrown on every rank with the same kind and text. It counts as an error of
/// each rank, since a failure of work for all ranks says nothing of rank 0's node.
/// Collective.
std::string on_rank_zero(Communicator& group, const std::function<std::string()>& work);
/// Runs on rank 0 a `work` that returns nothing. Collective.
template <typename Work>
  requires std::is_void_v<std::invoke_result_t<Work>>
void on_rank_zero(Communicator& group, const Work& work) {
  on_rank_zero(group, [&] { return work(), std::string(); });
}

/// Runs `work` on every rank. If `work` throws an Error on any rank, every rank throws
/// the error of the lowest such rank. A rank on which `work` did not fail notes that the
/// error is another rank's (Ledger::failed_elsewhere). Collectives within `work` must not
/// depend on anything that can fail on one rank alone. Collective.
void on_all_ranks(Communicator& group, const std::function<void()>& work);

}  // namespace longhaul::comm
