#pragma once

#include <utility>
#include <vector>

#include "longhaul/infer/generate.h"
#include "longhaul/session/session.h"
#include "longhaul/session/token_scores.h"

namespace longhaul::session {

/// One of several sequences that are continued together.
struct Continuation {
  std::vector<int64_t> prompt;  ///< not empty
  /// The stop ids are the caller's to look for. With max_new_tokens 0 the prompt is only
  /// scored.
  infer::SamplingOptions sampling;
  /// How many of the likeliest ids come with each chosen one, with their
  /// log-probabilities; -1: none, and no log-probability of the chosen one.
  int64_t top = -1;
  bool scores = false;  ///< of the prompt's tokens behind the first
};

/// A token that was chosen. Log-probabilities are natural, of the model's own softmax
/// (temperature 1).
struct ChosenToken {
  int64_t id = 0;
  double log_prob = 0.0;                        ///< 0 with `top` -1
  std::vector<std::pair<int64_t, double>> top;  ///< the likeliest ids, best first
};

/// Continues sequences together on all ranks of a session whose data is not split: cp is
/// 1, and sequence parallelism is off. All ranks of dp, which are there for their
/// experts, continue the same sequences. Each rank keeps the keys and values of its heads
/// and layers; the first rank of the last stage chooses the tokens and sends them to all
/// ranks.
///
/// Sequences of different lengths end at the same place of their rows. What stands before
/// a shorter one is seen by nobody, and positions count from its own first token. So what
/// becomes of a sequence depends on the others by rounding alone. All choose by their own
/// settings, as if alone.
class SequenceRunner {
 public:
  /// `session` must outlive this object.
  explicit SequenceRunner(const Session& session);

  /// Begins these sequences in place of those before, and returns the first token of
  /// each, the same on every rank. A sequence with max_new_tokens 0 gets token 0. Keys
  /// and values are kept only if some sequence goes on for more than one token.
  /// Collective.
  std::vector<ChosenToken> begin(std::vector<Continuation> sequences);
  /// Returns the scores of the prompts that asked for them, one sequence after another.
  std::vector<TokenScore> take_scores() { return std::exchange(scores_, {}); }
  /// Appends the tokens that were chosen last, and returns the next ones. Collective.
  std::vector<ChosenToken> next();
  /// Goes on with only these sequences, by their numbers in ascending order.
  void keep(const std::vector<size_t>& numbers);

 private:
  /// Keeps the logits of the last position of each sequence, and scores given tokens.
  class Head : public ForwardObserver {
   public:
    explicit Head(const Session& session) : scores(session) {}
    bool takes_targets() const override { return true; }
    void head(const models::Model& model, const nn::Tensors& hidden,
              const nn::ForwardContext& context) override;
    at::Tensor logits;  ///< this rank's part of [B, V]; undefined where it has no head
    ScoreObserver scores;
  };
  struct Row {
    Continuation sequence;
    int64_t first = 0;  ///< the place of its first token in the row
    int64_t last = 0;   ///< the token that was chosen last
  };

  std::vector<ChosenToken> run(data::TokenBatch batch);
  void spread_scores(int64_t count);
  std::vector<ChosenToken> choose();

  const Session& session_;
  Head head_;
  StageRunner runner_;
  std::vector<Row> rows_;
  std::vector<nn::KvCache> caches_;  ///< one for each chunk; empty: none are kept
  int64_t length_ = 0;               ///< tokens of each row so far
  int64_t step_ = 0;                 ///< numbers the tokens that are chosen
  std::vector<TokenScore> scores_;
};

}  // namespace longhaul::session
