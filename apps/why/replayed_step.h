#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/why/run_data.h"

namespace longhaul::apps {

/// The verb of longhaul-torch that computes the losses of a step's documents, for
/// replay_step() alone: its arguments are the file of a request, and the file for the
/// answer.
inline constexpr const char* kDocumentLossesVerb = "why-losses";

struct ReplayOptions {
  fs::path dir;  ///< where the steps are trained again; nothing may be there
  bool keep = false;
  int64_t ranks = 0;  ///< 0: as many as in the run
};

/// What a document has added to the loss of a step.
struct DocumentLoss {
  double sum = 0.0;     ///< nats, over the targets at its positions
  int64_t targets = 0;  ///< their number
};

/// A step that was trained again from the checkpoint before it.
struct ReplayedStep {
  int64_t from = 0;   ///< the step of that checkpoint; 0: the run's beginning
  int64_t ranks = 1;  ///< that have trained
  double loss = 0.0;
  double grad_norm = 0.0;
  std::optional<uint64_t> data_hash;
  /// The first step after `from` of which loss, gradient norm or data hash are not those
  /// of the record, to the last bit; 0: all are.
  int64_t first_different = 0;
  int64_t other_data = 0;  ///< the first step of which the data hash differs; 0: none
  /// By part of the step; empty if `unranked` says why there are none.
  std::vector<DocumentLoss> losses;
  std::string unranked;
};

/// Trains the steps from the newest checkpoint before a step up to the step again, in a
/// directory of its own, and computes which part of the loss each of `parts` has. The
/// weights are those before the step. A document has the targets at its positions.
/// Progress goes to standard error. Nothing of the run is written. Throws InputError for
/// settings that are not known, and the kind of error with which the training ended.
ReplayedStep replay_step(RunData& data, const StepPlace& step,
                         const std::vector<StepPart>& parts,
                         const ReplayOptions& options);

}  // namespace longhaul::apps
