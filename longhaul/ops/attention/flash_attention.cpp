#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logaddexp.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/ops/attention/backend.h"
#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/fused/library_op.h"
#include "longhaul/ops/narrow/narrow.h"

// Shapes: B sequences, S queries, K keys, Hq and Hkv heads, D head dim.

namespace longhaul::ops {
namespace {

const LibraryOp kFlashForward("aten::_flash_attention_forward", "",
                              "query key value cum_seq_q cum_seq_k max_q max_k dropout_p "
                              "is_causal return_debug_mask scale window_size_left "
                              "window_size_right");
const LibraryOp kFlashBackward(
    "aten::_flash_attention_backward", "",
    "grad_out query key value out logsumexp cum_seq_q cum_seq_k max_q max_k dropout_p "
    "is_causal rng_state unused scale window_size_left window_size_right");

bool flash_takes(const AttentionPart& part) {
  const at::Tensor& q = part.q;
  const AttentionProblem& problem = part.problem;
  const int64_t D = q.size(3);
  const bool documents = problem.document_start.defined() || !problem.causal();
  const bool known = problem.documents.bounds.defined() && part.k().size(1) == q.size(1);
  return !q.is_cpu() &&
         (q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf) &&
         D % 8 == 0 && D <= 256 && part.v().size(3) == D && !problem.dropout.drops() &&
         problem.score_cap == 0.0 && !narrow::is_on_narrow_device(q) &&
         (!documents || (part.whole && known)) && flash_obstacle(q.device()).empty();
}

/// The arguments of one call of a kernel: tensors are [B, S, H, D], or [T, H, D] with
/// `bounds`.
struct FlashCall {
  at::Tensor q, k, v;
  double scale;        ///< factor of the scores
  bool causal = true;  ///< the last query sees up to the last key
  /// The number of keys that a query sees before its diagonal key; absent: all. The
  /// diagonal key of the last query is the last key, that of the query before it the key
  /// before, and so on.
  std::optional<int64_t> left = {};
  DocumentBounds documents = {};

  c10::IValue bounds() const {
    return documents.bounds.defined() ? c10::IValue(documents.bounds) : c10::IValue();
  }
  int64_t longest(const at::Tensor& x) const {
    return documents.bounds.defined() ? documents.longest : x.size(1);
  }
};

void add_form(LibraryArguments& arguments, const FlashCall& call) {
  std::optional<int64_t> right;
  if (call.left && call.causal) right = 0;
  arguments.insert(arguments.end(), {{"query", call.q},
                                     {"key", call.k},
                                     {"value", call.v},
                                     {"max_q", call.longest(call.q)},
                                     {"max_k", call.longest(call.k)},
                                     {"dropout_p", 0.0},
                                     {"is_causal", call.causal},
                                     {"scale", call.scale},
                                     {"window_size_left", call.left},
                                     {"window_size_right", right}});
}

Attended run_forward(const FlashCall& call) {
  LibraryArguments arguments = {{"cum_seq_q", call.bounds()},
                                {"cum_seq_k", call.bounds()},
                                {"return_debug_mask", false}};
  add_form(arguments, call);
  const auto results = kFlashForward.call(std::move(arguments));
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor(),
          results[3].toTensor()};
}

AttentionGradients run_backward(const FlashCall& call, const at::Tensor& dout,
                                const Attended& forward) {
  LibraryArguments arguments = {{"grad_out", dout},
                                {"out", forward.out},
                                {"logsumexp", forward.lse},
                                {"cum_seq_q", call.documents.bounds},
                                {"cum_seq_k", call.documents.bounds},
                                {"rng_state", forward.rng},
                                {"unused", forward.unused}};
  add_form(arguments, call);
  const auto results = kFlashBackward.call(std::move(arguments));
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
}

std::optional<int64_t> left_of(std::optional<int64_t> window) {
  return window ? std::optional(*window - 1) : std::nullopt;
}

/// Returns the call for all keys at once.
FlashCall whole_call(const AttentionPart& part) {
  const AttentionProblem& problem = part.problem;
  FlashCall call{part.q,           part.k(),
                 part.v(),         problem.scale_of<double>(part.q.size(3)),
                 problem.causal(), left_of(problem.window),
                 problem.documents};
  if (!problem.documents.bounds.defined()) return call;
  for (at::Tensor* x : {&call.q, &call.k, &call.v}) *x = x->flatten(0, 1);
  return call;
}

/// A range of the queries of a part and a range of the keys that they see. Each query
/// sees at least one key. The kernels align the last query with the last key, and derive
/// from this alignment which keys are hidden.
struct FlashRun {
  int64_t query, queries;
  int64_t key, keys;
  bool causal;
  std::optional<int64_t> left;
};

std::vector<FlashRun> runs_of(const AttentionPart& part) {
  const int64_t S = part.q.size(1), K = part.k().size(1);
  // The offset is the index of query 0 among the keys.
  const int64_t offset = part.query_begin - part.key_begin;
  const std::optional<int64_t> window = part.problem.window;
  const auto first_key = [&](int64_t query) {
    return std::clamp<int64_t>(query + offset + 1 - part.problem.reach(), 0, K);
  };
  std::vector<FlashRun> runs;
  // These are the queries whose own key is among the keys of the part.
  const int64_t from = std::clamp<int64_t>(-offset, 0, S);
  const int64_t beyond = std::clamp<int64_t>(K - offset, from, S);
  if (beyond > from) {
    const int64_t key = first_key(from), end = beyond + offset;
    runs.push_back({from, beyond - from, key, end - key, true, left_of(window)});
  }
  // These are the queries behind all keys of the part, as far as the window reaches back.
  const int64_t reach = window ? K + *window - 1 - offset : S;
  const int64_t end = std::clamp<int64_t>(reach, beyond, S);
  if (end > beyond) {
    const int64_t queries = end - beyond, key = first_key(beyond);
    std::optional<int64_t> left;
    // `left` is counted for the last query, end - 1, backwards from the last key.
    if (window) left = K - 1 - (end - 1 + offset - *window + 1);
    runs.push_back({beyond, queries, key, K - key, false, left});
  }
  return runs;
}

FlashCall call_of(const AttentionPart& part, const FlashRun& run) {
  return {part.q.narrow(1, run.query, run.queries),
          part.k().narrow(1, run.key, run.keys),
          part.v().narrow(1, run.key, run.keys),
          part.problem.scale_of<double>(part.q.size(3)),
          run.causal,
          run.left};
}

/// Throws an internal Error unless the run has all queries of the part, as the first part
/// of a result must.
void check_first(const AttentionPart& part, const FlashRun& run) {
  LH_ASSERT(run.queries == part.q.size(1), "the first part has {} queries of {}",
            run.queries, part.q.size(1));
}

/// Returns [B, Hq, n] in the shape that multiplies [B, n, Hq, D].
at::Tensor over_rows(const at::Tensor& x) { return x.transpose(1, 2).unsqueeze(-1); }

/// Merges `fresh`, the result over other keys, into `out` [B, n, Hq, D] and `lse` [B, Hq,
/// n], both fp32.
void merge(const Attended& fresh, at::Tensor& out, at::Tensor& lse) {
  if (fused::supports(fresh.out, fused::op<kernels::MergeAttention>)) {
    return fused::op<kernels::MergeAttention>(fresh.out.contiguous(),
                                              fresh.lse.contiguous(), out, lse);
  }
  const at::Tensor now = at::logaddexp(lse, fresh.lse);
  out.mul_(over_rows(at::exp(lse - now)))
      .addcmul_(fresh.out, over_rows(at::exp(fresh.lse - now)));
  lse.copy_(now);
}

Attended flash_forward(const AttentionPart& part) {
  Attended result = run_forward(whole_call(part));
  result.out = result.out.contiguous().view(part.q.sizes());
  return result;
}

AttentionGradients flash_backward(const AttentionPart& part, const at::Tensor& dout,
                                  const Attended& forward) {
  const FlashCall call = whole_call(part);
  Attended of_call = forward;
  of_call.out = forward.out.view(call.q.sizes());
  const AttentionGradients flat =
      run_backward(call, dout.contiguous().view(call.q.sizes()), of_call);
  return {flat[0].view(part.q.sizes()), flat[1].view(part.k().sizes()),
          flat[2].view(part.v().sizes())};
}

void flash_part_forward(const AttentionPart& part, at::Tensor& out, at::Tensor& lse) {
  for (const FlashRun& run : runs_of(part)) {
    const Attended fresh = run_forward(call_of(part, run));
    if (!out.defined()) {
      check_first(part, run);
      out = fresh.out.to(at::kFloat);
      lse = fresh.lse.contiguous();
      continue;
    }
    at::Tensor rows = out.narrow(1, run.query, run.queries);
    at::Tensor lse_of_rows = lse.narrow(2, run.query, run.queries);
    merge(fresh, rows, lse_of_rows);
  }
}

void flash_part_backward(const AttentionPart& part, const at::Tensor& dout,
                         const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                         const KeptPositions& gradients) {
  // Without dropout the kernel does not read the random state of a forward.
  const at::Tensor rng =
      at::empty({2}, at::TensorOptions(at::kUInt64).device(part.q.device()));
  for (const FlashRun& run : runs_of(part)) {
    const auto rows = [&](const at::Tensor& x) {
      return x.narrow(1, run.query, run.queries).contiguous();
    };
    const Attended forward{rows(out), lse.narrow(2, run.query, run.queries).contiguous(),
                           rng, at::empty({0}, rng.options())};
    const AttentionGradients fresh =
        run_backward(call_of(part, run), rows(dout), forward);
    if (dq.defined()) {
      dq.narrow(1, run.query, run.queries).add_(fresh[0]);
    } else {
      check_first(part, run);
      dq = fresh[0].to(at::kFloat);
    }
    gradients[0].narrow(1, run.key, run.keys).add_(fresh[1]);
    gradients[1].narrow(1, run.key, run.keys).add_(fresh[2]);
  }
}

}  // namespace

std::string flash_obstacle(at::Device device) {
  return obstacle_of(device, kFlashForward, kFlashBackward);
}

const AttentionBackend kFlash{
    "LibTorch's flash kernels", flash_takes,        flash_forward, flash_backward,
    flash_part_forward,         flash_part_backward};

}  // namespace longhaul::ops
