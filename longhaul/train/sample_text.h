#pragma once

#include <memory>
#include <string>
#include <vector>

#include "longhaul/tokenizer/tokenizer.h"
#include "longhaul/train/log/run_log.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// The prompts of [log], as a model reads them.
struct EncodedPrompts {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::vector<std::vector<int64_t>> prompts;
  std::vector<int64_t> stop_ids;
};

/// Encodes the prompts of [log]. Where training data are chats or pairs, a prompt is a
/// user's message, as the model's chat template writes it. Throws ConfigError for a model
/// without a tokenizer, and InputError for chats without a template.
EncodedPrompts encode_prompts(const RunConfig& config, const ModelConfig& model,
                              const objects::Access& objects);

/// Returns the tokens of the longest prompt and of what continues it.
int64_t tokens_of_samples(const std::vector<std::vector<int64_t>>& prompts,
                          const LogSection& log);

/// Tells which token follows some sequences, in every layout: a forward pass over whole
/// sequences, as a validation has it. Nothing of the training changes.
class NextTokens {
 public:
  /// Makes room for sequences of `wanted` tokens, or of data.seq_len where that is less.
  /// `session` must outlive this object. Collective.
  NextTokens(const TrainingSession& session, int64_t wanted);

  /// Returns for how many tokens there is room.
  int64_t length() const { return length_; }
  /// Returns the most probable token after each sequence, the same on all ranks.
  /// Collective.
  std::vector<int64_t> after(const std::vector<std::vector<int64_t>>& sequences);
  /// Returns this rank's part of the logits behind each sequence, [columns] on the
  /// device. The parts are undefined on a rank that has none. Collective.
  std::vector<at::Tensor> logits(const std::vector<std::vector<int64_t>>& sequences);

 private:
  /// Keeps, for each pass, the logits of the one token with a target.
  class LastLogits : public session::ForwardObserver {
   public:
    void head(const models::Model& model, const nn::Tensors& hidden,
              const nn::ForwardContext& context) override;
    std::vector<at::Tensor> logits;  ///< [1, this rank's columns], or [0, ...] without it
  };

  const TrainingSession& session_;
  int64_t length_;
  LastLogits last_;
  std::unique_ptr<session::StageRunner> runner_;
};

/// Continues the prompts of [log] as the model stands, so that people can read what it
/// has learned.
class SampleText {
 public:
  /// Encodes the prompts on rank 0 (encode_prompts). `session` and `run` must outlive
  /// this object. Throws ConfigError, the same on every rank, for prompts without a
  /// tokenizer or without room in a sequence, and for a model that is not causal, and
  /// InputError for chats without a template. Collective.
  SampleText(const TrainingSession& session, RunLog& run);

  bool wanted() const { return !prompts_.empty(); }
  /// Writes a greedy continuation of each prompt to the log and the events. Collective.
  void tell(int64_t step);

 private:
  void encode();

  const TrainingSession& session_;
  RunLog& run_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;  ///< rank 0's
  std::vector<std::vector<int64_t>> prompts_;
  std::vector<int64_t> stop_ids_;
  std::unique_ptr<NextTokens> next_;
};

}  // namespace longhaul::train
