#include "longhaul/session/task_answers.h"

#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/session/token_scores.h"

namespace longhaul::session {
namespace {

struct Wanted {
  int32_t request;  ///< negative: the place gives no such token
  int32_t token;
};

/// Returns the targets of the batches in the order of their scores, and takes the numbers
/// of their requests out of the batches.
std::vector<Wanted> take_wanted(std::vector<data::TokenBatch>& batches) {
  std::vector<Wanted> wanted;
  for (data::TokenBatch& batch : batches) {
    std::vector<std::vector<int32_t>> given;
    for (size_t i = 0; i < batch.targets[0].size(); ++i) {
      if (batch.targets[0][i] == data::kIgnore) continue;
      for (size_t term = 0; term < batch.targets.size(); term += 2) {
        wanted.push_back({batch.targets[term + 1][i], batch.targets[term][i]});
      }
    }
    for (size_t term = 0; term < batch.targets.size(); term += 2) {
      given.push_back(std::move(batch.targets[term]));
    }
    batch.targets = std::move(given);
  }
  return wanted;
}

}  // namespace

std::vector<data::TaskAnswer> answer_requests(
    const Session& session, const data::TaskRows& rows,
    const infer::EvaluateOptions& options, const std::function<void()>& before_batches) {
  TokenScorer scorer(session);
  const auto requests = static_cast<size_t>(rows.num_requests());
  // By request the sum of its log-probabilities, and then how many of its tokens are not
  // the likeliest ones.
  const auto answer = [&](std::vector<data::TokenBatch>& batches) {
    if (before_batches) before_batches();
    const std::vector<Wanted> wanted = take_wanted(batches);
    const std::vector<TokenScore> scores = scorer.score(batches);
    LH_CHECK(scores.size() == wanted.size(), "tasks", "{} scores of {} tokens",
             scores.size(), wanted.size());
    std::vector<double> sums(2 * requests, 0.0);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].request < 0) continue;
      const auto request = static_cast<size_t>(wanted[i].request);
      sums[request] += scores[i].log_prob;
      if (scores[i].best != wanted[i].token) sums[requests + request] += 1.0;
    }
    return sums;
  };
  const infer::Evaluation all =
      infer::evaluate(answer, rows, session.mesh().dp(), options);
  std::vector<data::TaskAnswer> answers(requests);
  for (size_t i = 0; i < requests; ++i) {
    answers[i] = {all.sums[i], all.sums[requests + i] == 0.0};
  }
  return answers;
}

}  // namespace longhaul::session
