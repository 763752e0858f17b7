#pragma once

#include <memory>

#include "longhaul/session/session.h"

namespace longhaul::session {

/// What a model says of a given token behind the tokens before it. Log-probabilities are
/// natural.
struct TokenScore {
  float log_prob = 0.0F;       ///< of the given token
  float best_log_prob = 0.0F;  ///< the largest of the whole vocabulary at this place
  /// The greedy token: the lowest id that has the largest logit. The numbers of others
  /// may equal its own, by a tie or because they round to the same.
  int64_t best = -1;
};

/// Collects the scores of given tokens from the passes of a stage runner. Passes come
/// without gradients.
class ScoreObserver : public ForwardObserver {
 public:
  /// `session` must outlive this object.
  explicit ScoreObserver(const Session& session) : session_(session) {}

  bool takes_targets() const override { return true; }
  /// Scores the targets of all terms at the places where term 0 has one. Collective over
  /// tp.
  void head(const models::Model& model, const nn::Tensors& hidden,
            const nn::ForwardContext& context) override;
  /// Returns the scores of all passes since the last call, in the order of the passes, of
  /// this rank's tokens and of the terms. They are equal on all ranks of tp; a rank
  /// without the head has none.
  std::vector<TokenScore> take() { return std::exchange(scores_, {}); }

 private:
  const Session& session_;
  int64_t first_column_ = -1;  ///< of this rank's logits; -1: not known yet
  std::vector<TokenScore> scores_;
};

/// Scores given tokens in any layout of a run.
class TokenScorer {
 public:
  /// `session` must outlive this object. Throws InputError for a model that does not
  /// predict the next token.
  explicit TokenScorer(const Session& session);

  /// Returns the scores of the tokens given at each position that has a target in term 0,
  /// in the order of batches, rows and positions. A further term gives another token for
  /// the same position, whose score follows; where that token is negative, the score
  /// means nothing. All batches have equally many terms. The batches are micro
  /// batches of whole sequences, as loss_sums takes them: of each batch this rank's
  /// positions remain. Only rows with a target go through the output matrix, and no loss
  /// is computed. All ranks of a replica give the same batches and get the same scores.
  /// Replicas may give other batches, but equally many. Collective.
  std::vector<TokenScore> score(std::vector<data::TokenBatch>& batches);

 private:
  const Session& session_;
  ScoreObserver observer_;
  StageRunner runner_;
};

}  // namespace longhaul::session
