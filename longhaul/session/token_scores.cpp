#include "longhaul/session/token_scores.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/max.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/session/inference.h"

// Shapes: R rows with a target, V vocabulary or this rank's part of it.

namespace longhaul::session {
namespace {

/// The most logits that exist at once in fp32.
constexpr int64_t kScoredLogits = int64_t{1} << 22;

/// The numbers of one row's logits, over one rank's part of the vocabulary.
struct RowStatistics {
  double log_sum;  ///< log of the sum of e^logit
  double given;    ///< the target's logit; 0 if another rank has the target
  double most;     ///< the largest logit
  double best;     ///< the lowest id that has it
};
constexpr int64_t kStatistics = 4;
static_assert(sizeof(RowStatistics) == kStatistics * sizeof(double));

/// Returns the statistics of logits [R, V], whose first column is that of the id `first`,
/// fp64 [R, kStatistics] on the CPU.
at::Tensor statistics(const at::Tensor& logits, const at::Tensor& targets,
                      int64_t first) {
  const at::Tensor wide = logits.to(at::kFloat);
  const at::Tensor column = targets - first;
  const at::Tensor elsewhere = column.lt(0).logical_or_(column.ge(wide.size(1)));
  const at::Tensor given =
      at::gather(wide, 1, column.masked_fill(elsewhere, 0).unsqueeze(1))
          .squeeze(1)
          .masked_fill_(elsewhere, 0.0);
  const auto [most, best] = at::max(wide, 1);
  return at::stack({at::logsumexp(wide, 1).to(at::kDouble), given.to(at::kDouble),
                    most.to(at::kDouble), (best + first).to(at::kDouble)},
                   1)
      .cpu();
}

/// Puts the statistics of a row's parts together. Parts are in the order of their ids, so
/// that the lowest of equal ids wins.
TokenScore score_of(const std::vector<RowStatistics>& parts) {
  const auto most = std::ranges::max_element(
      parts, [](const auto& a, const auto& b) { return a.most < b.most; });
  double sum = 0.0, given = 0.0;
  for (const RowStatistics& part : parts) {
    sum += std::exp(part.log_sum - most->most);
    given += part.given;
  }
  const double log_sum =
      parts.size() == 1 ? parts[0].log_sum : std::log(sum) + most->most;
  return {static_cast<float>(given - log_sum), static_cast<float>(most->most - log_sum),
          static_cast<int64_t>(most->best)};
}

}  // namespace

void ScoreObserver::head(const models::Model& model, const nn::Tensors& hidden,
                         const nn::ForwardContext& context) {
  if (context.batch.targets.empty()) return;
  const at::Tensor rows = model.target_rows(hidden, context);
  const at::Tensor& all = context.batch.targets[0];
  const at::Tensor targets = all.masked_select(all.ge(0));
  comm::Communicator& tp = session_.mesh().tp();
  const int64_t R = rows.size(0);
  const int64_t chunk =
      std::max<int64_t>(1, kScoredLogits * tp.size() / session_.model().vocab_size);
  for (int64_t from = 0; from < R; from += chunk) {
    const int64_t n = std::min(chunk, R - from);
    const at::Tensor logits = model.logits(rows.narrow(0, from, n));
    if (first_column_ < 0) first_column_ = first_column(session_, logits.size(1));
    const at::Tensor mine = statistics(logits, targets.narrow(0, from, n), first_column_);
    std::vector<RowStatistics> parts(static_cast<size_t>(n * tp.size()));
    tp.all_gather({mine.const_data_ptr(), n * kStatistics, format::DType::F64},
                  {parts.data(), std::ssize(parts) * kStatistics, format::DType::F64})
        ->wait();
    for (int64_t row = 0; row < n; ++row) {
      std::vector<RowStatistics> of_row;
      for (int64_t r = 0; r < tp.size(); ++r) {
        of_row.push_back(parts[static_cast<size_t>(r * n + row)]);
      }
      scores_.push_back(score_of(of_row));
    }
  }
}

TokenScorer::TokenScorer(const Session& session)
    : session_(session),
      observer_(session),
      runner_(session.chunks(), session.replicas(), [&] {
        StageOptions options = stage_options(session);
        options.observer = &observer_;
        return options;
      }()) {
  if (session.model().description.is_causal()) return;
  fail_input("model",
             "a model of type \"{}\" predicts masked tokens, so it has no "
             "log-probabilities of the next token",
             session.model().model_type);
}

std::vector<TokenScore> TokenScorer::score(std::vector<data::TokenBatch>& batches) {
  const auto& context = session_.layout().description().context;
  std::vector<int32_t> own;  // the numbers of this rank's targets among all, in order
  int32_t count = 0;
  for (const data::TokenBatch& batch : batches) {
    std::vector<int32_t> numbers;
    for (const int32_t target : batch.targets.at(0)) {
      numbers.push_back(target < 0 ? -1 : count++);
    }
    if (context) numbers = context->take(numbers, session_.mesh().index().cp);
    std::ranges::copy_if(numbers, std::back_inserter(own),
                         [](int32_t number) { return number >= 0; });
  }
  session_.layout().take_own_positions(batches);
  run_forward(session_, runner_, batches);

  const std::vector<TokenScore> found = observer_.take();
  LH_ASSERT(found.empty() || found.size() == own.size(), "{} scores of {} tokens",
            found.size(), own.size());
  std::vector<double> numbers(static_cast<size_t>(3 * count), 0.0);
  for (size_t i = 0; i < found.size(); ++i) {
    double* to = numbers.data() + 3 * size_t{static_cast<uint32_t>(own[i])};
    *to++ = found[i].log_prob;
    *to++ = found[i].best_log_prob;
    *to = static_cast<double>(found[i].best);
  }
  if (count > 0) numbers = sum_of_replica(session_, std::move(numbers));
  std::vector<TokenScore> scores;
  for (size_t i = 0; i < numbers.size(); i += 3) {
    scores.push_back({static_cast<float>(numbers[i]), static_cast<float>(numbers[i + 1]),
                      static_cast<int64_t>(numbers[i + 2])});
  }
  return scores;
}

}  // namespace longhaul::session
