#include "longhaul/session/token_scores.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/max.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/session/inference.h"
#include "longhaul/tensor/device_limits.h"

// Shapes: R rows with a target, G tokens given for each, V vocabulary or this rank's part
// of it.

namespace longhaul::session {
namespace {

/// The most logits that exist at once in fp32.
constexpr int64_t kScoredLogits = int64_t{1} << 22;

/// The numbers of one row's logits, over one rank's part of the vocabulary; behind them
/// come the logits of the given tokens, each 0 if another rank has the token.
struct RowStatistics {
  double log_sum;  ///< log of the sum of e^logit
  double most;     ///< the largest logit
  double best;     ///< the lowest id that has it
};
constexpr int64_t kStatistics = 3;
static_assert(sizeof(RowStatistics) == kStatistics * sizeof(double));

/// Returns the statistics of logits [R, V], whose first column is that of the id `first`,
/// and the logits of `given` [R, G], fp64 [R, kStatistics + G] on the CPU. A token that
/// is negative counts as one of another rank.
at::Tensor statistics(const at::Tensor& logits, const at::Tensor& given, int64_t first) {
  const at::Tensor wide = logits.to(at::kFloat);
  const at::Tensor column = given - first;
  const at::Tensor elsewhere =
      given.lt(0).logical_or_(column.lt(0)).logical_or_(column.ge(wide.size(1)));
  const at::Tensor found =
      at::gather(wide, 1, column.masked_fill(elsewhere, 0)).masked_fill_(elsewhere, 0.0);
  const auto [most, best] = at::max(wide, 1, /*keepdim=*/true);
  return at::cat({at::logsumexp(wide, 1, /*keepdim=*/true).to(at::kDouble),
                  most.to(at::kDouble), (best + first).to(at::kDouble),
                  found.to(at::kDouble)},
                 1)
      .cpu();
}

/// Puts the statistics of a row's parts together, and adds the score of each given token.
/// Parts are in the order of their ids, so that the lowest of equal ids wins.
void add_scores(const std::vector<const double*>& parts, int64_t given,
                std::vector<TokenScore>& scores) {
  std::vector<RowStatistics> rows(parts.size());
  for (size_t r = 0; r < parts.size(); ++r) {
    std::memcpy(&rows[r], parts[r], sizeof(RowStatistics));
  }
  const auto most = std::ranges::max_element(
      rows, [](const auto& a, const auto& b) { return a.most < b.most; });
  double sum = 0.0;
  for (const RowStatistics& row : rows) sum += std::exp(row.log_sum - most->most);
  const double log_sum = rows.size() == 1 ? rows[0].log_sum : std::log(sum) + most->most;
  for (int64_t g = 0; g < given; ++g) {
    double logit = 0.0;
    for (const double* part : parts) logit += part[kStatistics + g];
    scores.push_back({static_cast<float>(logit - log_sum),
                      static_cast<float>(most->most - log_sum),
                      static_cast<int64_t>(most->best)});
  }
}

}  // namespace

void ScoreObserver::head(const models::Model& model, const nn::Tensors& hidden,
                         const nn::ForwardContext& context) {
  if (context.batch.targets.empty()) return;
  const at::Tensor rows = model.target_rows(hidden, context);
  // A device without 64-bit numbers leaves the statistics to the host.
  const bool on_host = !tensor::limits_of(rows.device()).wide_types;
  const auto place = [&](const at::Tensor& x) {
    return on_host ? session_.layout().to_host(x) : x;
  };
  const at::Tensor here = place(context.batch.targets[0]).ge(0);
  std::vector<at::Tensor> of_terms;
  for (const at::Tensor& term : context.batch.targets) {
    of_terms.push_back(place(term).to(at::kLong).masked_select(here));
  }
  const at::Tensor given = at::stack(of_terms, 1);
  comm::Communicator& tp = session_.mesh().tp();
  const int64_t R = rows.size(0), G = given.size(1), width = kStatistics + G;
  const int64_t chunk =
      std::max<int64_t>(1, kScoredLogits * tp.size() / session_.model().vocab_size);
  for (int64_t from = 0; from < R; from += chunk) {
    const int64_t n = std::min(chunk, R - from);
    const at::Tensor logits = place(model.logits(rows.narrow(0, from, n)));
    if (first_column_ < 0) first_column_ = first_column(session_, logits.size(1));
    const at::Tensor mine = statistics(logits, given.narrow(0, from, n), first_column_);
    std::vector<double> all(static_cast<size_t>(n * width * tp.size()));
    tp.all_gather({mine.const_data_ptr(), n * width, format::DType::F64},
                  {all.data(), std::ssize(all), format::DType::F64})
        ->wait();
    for (int64_t row = 0; row < n; ++row) {
      std::vector<const double*> parts;
      for (int64_t r = 0; r < tp.size(); ++r) {
        parts.push_back(all.data() + (r * n + row) * width);
      }
      add_scores(parts, G, scores_);
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
  const size_t given = batches.empty() ? 1 : batches[0].targets.size();
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
  LH_ASSERT(found.empty() || found.size() == own.size() * given,
            "{} scores of {} targets", found.size(), own.size());
  std::vector<double> numbers(3 * given * static_cast<size_t>(count), 0.0);
  for (size_t i = 0; i < found.size(); ++i) {
    const size_t number =
        size_t{static_cast<uint32_t>(own[i / given])} * given + i % given;
    double* to = numbers.data() + 3 * number;
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
