#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "longhaul/comm/communicator.h"

namespace longhaul::comm {

/// Returns the lowest rank whose `mine` is true, -1 if there is none. Collective.
int first_rank(Communicator& group, bool mine);

/// Returns the different texts among those of the ranks, each once, in the order of the
/// lowest ranks that have them; the same on every rank. Sends each of these texts once to
/// every rank, and no text of another rank. Collective.
std::vector<std::string> distinct_texts(Communicator& group, const std::string& mine);

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
/// Runs `work`, which may take longer than a collective may, on a thread of each rank, as
/// on_all_ranks() does. The ranks communicate until all threads have ended; `work` must
/// not communicate, nor use the rank's record. `stop` is to end the work of this rank
/// early: it is called, perhaps often, after a signal and when another rank is lost. An
/// empty `stop` is not called. Collective.
void do_and_meet(Communicator& group, const std::function<void()>& work,
                 const std::function<void()>& stop);

}  // namespace longhaul::comm
