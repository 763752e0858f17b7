#pragma once

#include <memory>
#include <string>
#include <vector>

#include "longhaul/tokenizer/tokenizer.h"
#include "longhaul/train/log/run_log.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// Continues the prompts of [log] as the model stands, so that people can read what it
/// has learned. Where training data are chats or pairs, a prompt is a user's message, as
/// the model's chat template writes it. Works in every layout: each token is a forward
/// pass over whole sequences, as a validation has it. Nothing of the training changes.
class SampleText {
 public:
  /// Encodes the prompts on rank 0. `session` and `run` must outlive this object. Throws
  /// ConfigError, the same on every rank, for prompts without a tokenizer or without room
  /// in a sequence, and for a model that is not causal, and InputError for chats without
  /// a template. Collective.
  SampleText(const TrainingSession& session, RunLog& run);

  bool wanted() const { return !prompts_.empty(); }
  /// Writes a greedy continuation of each prompt to the log and the events. Collective.
  void tell(int64_t step);

 private:
  /// Keeps, for each pass, the logits of the one token with a target.
  class LastLogits : public session::ForwardObserver {
   public:
    void head(const models::Model& model, const nn::Tensors& hidden,
              const nn::ForwardContext& context) override;
    std::vector<at::Tensor> logits;  ///< [1, this rank's columns], or [0, ...] without it
  };
  void encode();
  std::vector<int64_t> next_ids(const std::vector<std::vector<int64_t>>& sequences);

  const TrainingSession& session_;
  RunLog& run_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;  ///< rank 0's
  std::vector<std::vector<int64_t>> prompts_;
  std::vector<int64_t> stop_ids_;
  int64_t length_ = 0;  ///< of the sequences, prompt and continuation together
  LastLogits last_;
  std::unique_ptr<session::StageRunner> runner_;
};

}  // namespace longhaul::train
