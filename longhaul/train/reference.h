#pragma once

#include "longhaul/system/log.h"
#include "longhaul/train/history/history.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// Gives the session's sources of pairs what the reference thinks of them: the sums of
/// log-probabilities of both sides of each pair, by the weights with which the run began.
/// Does nothing for a run whose loss has no reference.
///
/// The sums are computed once, forward only, in the run's layout and by the kernels that
/// compute those of the model. They are kept in data.cache under a hash of the model,
/// the layout and the rows. Rank 0 reads and writes the file, whole or not at all. A file
/// that is damaged, or is of something else, is made anew. A run that has made updates
/// and lacks the file loads its first weights again for that, and then goes on with its
/// own. Throws ConfigError if the settings name other first weights by now, and
/// InputError for sums that are not finite.
///
/// `history` is that of the loaded state. At the start of a run it gets the hash of the
/// weights, by which later starts find the file. share_weights must have been called.
/// Throws EndedEarly (control_files.h) after a
/// signal. Collective.
void find_reference(TrainingSession& session, History& history, system::Logger& log);

}  // namespace longhaul::train
