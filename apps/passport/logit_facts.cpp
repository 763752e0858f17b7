#include "apps/passport/logit_facts.h"

#include <algorithm>
#include <cmath>

#include "apps/passport/hard_texts.h"
#include "longhaul/base/error.h"
#include "longhaul/base/random.h"
#include "longhaul/session/token_scores.h"

namespace longhaul::apps {
namespace {

constexpr size_t kPrompts = 32;
/// The last prompts are long, so that rotations of positions show.
constexpr size_t kLongPrompts = 2;
constexpr int64_t kShortPrompt = 64;
constexpr size_t kRows = 8;  ///< of a forward pass

using Ids = std::vector<int32_t>;

/// Appends the ids of hard texts, from text `from` on, until there are `length`.
void append_text(const tokenizer::Tokenizer& tokenizer, size_t from, int64_t vocab_size,
                 size_t length, Ids& ids) {
  const std::vector<std::string> texts = hard_texts(from + length);
  for (size_t i = from; i < texts.size() && ids.size() < length; ++i) {
    try {
      for (const auto id : tokenizer.encode(texts[i], /*add_special_tokens=*/false)) {
        if (id < vocab_size) ids.push_back(static_cast<int32_t>(id));
      }
    } catch (const InputError&) {
      continue;  // the vocabulary cannot express a character
    }
  }
}

std::vector<Ids> make_prompts(const tokenizer::Tokenizer* tokenizer, int64_t vocab_size,
                              int64_t positions) {
  std::vector<Ids> prompts(kPrompts);
  for (size_t i = 0; i < kPrompts; ++i) {
    const bool is_long = i + kLongPrompts >= kPrompts;
    const int64_t most = std::min(positions, is_long ? kLongestPrompt : kShortPrompt);
    const auto wanted = static_cast<int64_t>(2 + 2 * i);
    const auto length = static_cast<size_t>(is_long ? most : std::min(wanted, most));
    if (tokenizer != nullptr && i % 2 == 0) {
      append_text(*tokenizer, 8 * i, vocab_size, length, prompts[i]);
    }
    for (size_t at = prompts[i].size(); at < length; ++at) {
      const auto bits = philox(/*key=*/i, at, 0);
      prompts[i].push_back(static_cast<int32_t>(bits[0] % vocab_size));
    }
    prompts[i].resize(length);
  }
  return prompts;
}

/// Returns a batch of these prompts, with padding behind the shorter ones, whose tokens
/// are targets behind the tokens before them.
data::TokenBatch batch_of(std::span<const Ids> prompts) {
  const auto longest =
      static_cast<int64_t>(std::ranges::max(prompts, {}, &Ids::size).size());
  data::TokenBatch batch;
  batch.resize(std::ssize(prompts), longest);
  std::ranges::fill(batch.tokens, 0);
  std::ranges::fill(batch.targets[0], data::kIgnore);
  std::ranges::fill(batch.document_start, 0);
  for (size_t row = 0; row < prompts.size(); ++row) {
    const size_t begin = row * static_cast<size_t>(longest);
    const Ids& ids = prompts[row];
    for (size_t i = 0; i < static_cast<size_t>(longest); ++i) {
      batch.positions[begin + i] = static_cast<int32_t>(i);
      if (i < ids.size()) batch.tokens[begin + i] = ids[i];
      if (i + 1 < ids.size()) batch.targets[0][begin + i] = ids[i + 1];
    }
    data::set_real_length(batch, static_cast<int64_t>(row), std::ssize(ids));
  }
  return batch;
}

/// Returns a log-probability with the digits that are worth keeping.
double rounded(float log_prob) { return std::round(double{log_prob} * 1e6) / 1e6; }

}  // namespace

Json logit_facts(const session::Session& session, const tokenizer::Tokenizer* tokenizer) {
  const std::vector<Ids> prompts =
      make_prompts(tokenizer, session.model().vocab_size, session.config().data.seq_len);
  const std::span<const Ids> all(prompts);
  const std::span<const Ids> shorter = all.first(kPrompts - kLongPrompts);
  session::TokenScorer scorer(session);
  std::vector<data::TokenBatch> batches;
  for (size_t i = 0; i < shorter.size(); i += kRows) {
    batches.push_back(batch_of(shorter.subspan(i, std::min(kRows, shorter.size() - i))));
  }
  std::vector<session::TokenScore> scores = scorer.score(batches);
  batches.clear();
  batches.push_back(batch_of(all.last(kLongPrompts)));
  std::ranges::copy(scorer.score(batches), std::back_inserter(scores));

  Json list = Json::array();
  auto score = scores.begin();
  for (const Ids& ids : prompts) {
    Json log_probs = Json::array(), best = Json::array(), best_log_probs = Json::array();
    for (size_t i = 1; i < ids.size(); ++i, ++score) {
      log_probs.push_back(rounded(score->log_prob));
      best.push_back(score->best);
      best_log_probs.push_back(rounded(score->best_log_prob));
    }
    list.push_back({{"ids", ids},
                    {"log_probs", std::move(log_probs)},
                    {"best", std::move(best)},
                    {"best_log_probs", std::move(best_log_probs)}});
  }
  LH_ASSERT(score == scores.end(), "{} scores are left", scores.end() - score);
  return list;
}

}  // namespace longhaul::apps
