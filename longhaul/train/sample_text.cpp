#include "longhaul/train/sample_text.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/comm/agree.h"
#include "longhaul/data/store/store.h"
#include "longhaul/infer/chat_prompt.h"
#include "longhaul/infer/generate.h"
#include "longhaul/session/inference.h"
#include "longhaul/tokenizer/stream_decoder.h"
#include "longhaul/train/start/staged_inputs.h"

namespace longhaul::train {
namespace {

/// Returns whether a source of a run's training data holds chats or pairs. The prompts of
/// such a run are messages of a user.
bool trains_on_chats(const RunConfig& config, const objects::Access& objects) {
  for (const TrainSource& source : config.data.train) {
    if (source.synthetic > 0) continue;
    for (const fs::path& path : local_paths(source.path, objects)) {
      if (!data::is_token_store(path)) continue;
      const auto pieces = objects.pieces_at(path);
      if (data::read_store_info(path, pieces.get()).kind != "text") return true;
    }
  }
  return false;
}

}  // namespace

EncodedPrompts encode_prompts(const RunConfig& config, const ModelConfig& model,
                              const objects::Access& objects) {
  EncodedPrompts encoded;
  encoded.tokenizer = model_tokenizer(config, objects);
  if (!encoded.tokenizer) {
    throw ConfigError(
        "config",
        "log.prompts: no tokenizer.json and no tokenizer.model lies beside the weights "
        "or the model's config; put one there, or remove the prompts");
  }
  encoded.stop_ids = model.eos_token_ids;
  if (const auto eos = encoded.tokenizer->eos_id()) encoded.stop_ids.push_back(*eos);
  const bool chats = trains_on_chats(config, objects);
  for (const std::string& text : config.log.prompts) {
    if (!chats) {
      encoded.prompts.push_back(
          infer::encode_prompt(*encoded.tokenizer, text, model.vocab_size));
      continue;
    }
    const auto prompt =
        infer::chat_prompt(*encoded.tokenizer, text, {}, model.vocab_size);
    encoded.prompts.push_back(prompt.ids);
    if (prompt.end_of_turn) encoded.stop_ids.push_back(*prompt.end_of_turn);
  }
  return encoded;
}

int64_t tokens_of_samples(const std::vector<std::vector<int64_t>>& prompts,
                          const LogSection& log) {
  size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  return static_cast<int64_t>(longest) + log.prompt_tokens;
}

void NextTokens::LastLogits::head(const models::Model& model, const nn::Tensors& hidden,
                                  const nn::ForwardContext& context) {
  logits.push_back(model.logits(model.target_rows(hidden, context)));
}

NextTokens::NextTokens(const TrainingSession& session, int64_t wanted)
    : session_(session), length_(session::dividing_length(session, wanted)) {
  session::StageOptions options = session::stage_options(session);
  options.observer = &last_;
  runner_ = std::make_unique<session::StageRunner>(session.chunks(), session.replicas(),
                                                   options);
}

std::vector<at::Tensor> NextTokens::logits(
    const std::vector<std::vector<int64_t>>& sequences) {
  const at::NoGradGuard no_grad;
  const layout::ContextLayout context(length_, session_.mesh().shape().cp);
  std::vector<data::TokenBatch> batches(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    data::TokenBatch& batch = batches[i];
    batch.resize(1, length_);
    std::ranges::fill(batch.tokens, 0);  // no token sees those after it
    std::ranges::copy(sequences[i], batch.tokens.begin());
    for (int64_t p = 0; p < length_; ++p) {
      batch.positions[static_cast<size_t>(p)] = static_cast<int32_t>(p);
    }
    std::ranges::fill(batch.document_start, 0);
    std::ranges::fill(batch.targets[0], data::kIgnore);
    batch.targets[0][sequences[i].size() - 1] = 0;  // this row's logits are wanted
    session::take_positions(context, session_.mesh().index().cp, batch);
  }
  last_.logits.clear();
  session::run_forward(session_, *runner_, batches);
  // Only the ranks that have the head and a sequence's last token have its logits.
  std::vector<at::Tensor> found(sequences.size());
  for (size_t i = 0; i < last_.logits.size(); ++i) {
    if (last_.logits[i].size(0) > 0) found[i] = last_.logits[i][0];
  }
  return found;
}

std::vector<int64_t> NextTokens::after(
    const std::vector<std::vector<int64_t>>& sequences) {
  const std::vector<at::Tensor> parts = logits(sequences);
  std::vector<int64_t> ids(sequences.size(), -1);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].defined()) continue;
    ids[i] = infer::sample(session::whole_logits(session_, parts[i]), {}, 0);
  }
  session_.world().all_reduce_wait(ids, comm::ReduceOp::Max);
  return ids;
}

SampleText::SampleText(const TrainingSession& session, RunLog& run)
    : session_(session), run_(run) {
  const LogSection& log = session.config().log;
  if (log.prompts.empty()) return;
  if (!session.model().description.is_causal()) {
    fail_config("config",
                "log.prompts: a model of type \"{}\" predicts masked "
                "tokens and cannot continue a text; remove the prompts",
                session.model().model_type);
  }
  encode();
  const int64_t needed = tokens_of_samples(prompts_, log);
  next_ = std::make_unique<NextTokens>(session, needed);
  if (next_->length() < needed) {
    fail_config("config",
                "log.prompts: a prompt of {} tokens and {} more (log.prompt_tokens) "
                "have no room in a sequence of {} (data.seq_len); shorten the prompt "
                "or lower log.prompt_tokens",
                needed - log.prompt_tokens, log.prompt_tokens, next_->length());
  }
}

void SampleText::encode() {
  const Json told = Json::parse(comm::on_rank_zero(session_.world(), [&] {
    EncodedPrompts encoded =
        encode_prompts(session_.config(), session_.model(), session_.objects());
    tokenizer_ = std::move(encoded.tokenizer);
    return json_text(Json{{"prompts", encoded.prompts}, {"stop", encoded.stop_ids}});
  }));
  prompts_ = told.at("prompts").get<std::vector<std::vector<int64_t>>>();
  stop_ids_ = told.at("stop").get<std::vector<int64_t>>();
}

void SampleText::tell(int64_t step) {
  std::vector<std::vector<int64_t>> sequences = prompts_;
  std::vector<bool> ended(sequences.size(), false);
  for (int64_t n = 0; n < session_.config().log.prompt_tokens; ++n) {
    const std::vector<int64_t> ids = next_->after(sequences);
    for (size_t i = 0; i < sequences.size(); ++i) {
      ended[i] = ended[i] || std::ranges::count(stop_ids_, ids[i]) > 0;
      if (!ended[i]) sequences[i].push_back(ids[i]);
    }
    if (std::ranges::count(ended, false) == 0) break;
  }
  if (!tokenizer_) return;
  for (size_t i = 0; i < sequences.size(); ++i) {
    tokenizer::StreamDecoder decoder(*tokenizer_, /*skip_special_tokens=*/false,
                                     {prompts_[i].begin(), prompts_[i].end()});
    std::string text;
    for (size_t n = prompts_[i].size(); n < sequences[i].size(); ++n) {
      text += decoder.add(static_cast<tokenizer::TokenId>(sequences[i][n]));
    }
    text += decoder.finish();
    run_.tell_sample({step, session_.config().log.prompts[i], text});
  }
}

}  // namespace longhaul::train
