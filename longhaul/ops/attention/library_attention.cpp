#include "longhaul/ops/attention/library_attention.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logaddexp.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/ops/attention/cudnn_attention.h"
#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/fused/library_op.h"

// Shapes: B sequences, S queries, K keys, Hq and Hkv heads, D head dim.

namespace longhaul::ops::library {
namespace {

const LibraryOp kForward("aten::_flash_attention_forward", "",
                         "query key value cum_seq_q cum_seq_k max_q max_k dropout_p "
                         "is_causal return_debug_mask scale window_size_left "
                         "window_size_right");
const LibraryOp kBackward("aten::_flash_attention_backward", "",
                          "grad_out query key value out logsumexp cum_seq_q cum_seq_k "
                          "max_q max_k dropout_p is_causal rng_state unused scale "
                          "window_size_left window_size_right");

bool fits(const at::Tensor& q, const AttentionMask& mask) {
  const int64_t D = q.size(3);
  return !q.is_cpu() &&
         (q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf) &&
         D % 8 == 0 && D <= 256 && !mask.dropout.drops() &&
         obstacle_of(q.device(), kForward, kBackward).empty();
}

/// The arguments of one call of a kernel: tensors are [B, S, H, D], or [T, H, D] with
/// `bounds`.
struct Call {
  at::Tensor q, k, v;
  double scale;        ///< factor of the scores
  bool causal = true;  ///< the last query sees up to the last key
  /// The number of keys that a query sees before the key at which causality ends, which
  /// is counted backwards from the last query and the last key; absent: all.
  std::optional<int64_t> left = {};
  at::Tensor bounds = {};  ///< of documents, int32
  int64_t longest = 0;     ///< tokens of the longest document

  c10::IValue bounds_or_none() const {
    return bounds.defined() ? c10::IValue(bounds) : c10::IValue();
  }
  int64_t max_q() const { return bounds.defined() ? longest : q.size(1); }
  int64_t max_k() const { return bounds.defined() ? longest : k.size(1); }
};

void add_form(LibraryArguments& arguments, const Call& call) {
  const auto optional = [](std::optional<int64_t> value) {
    return value ? c10::IValue(*value) : c10::IValue();
  };
  std::optional<int64_t> right;
  if (call.left && call.causal) right = 0;
  arguments.insert(arguments.end(), {{"max_q", call.max_q()},
                                     {"max_k", call.max_k()},
                                     {"dropout_p", 0.0},
                                     {"is_causal", call.causal},
                                     {"scale", call.scale},
                                     {"window_size_left", optional(call.left)},
                                     {"window_size_right", optional(right)}});
}

Attended run_forward(const Call& call) {
  LibraryArguments arguments = {{"query", call.q},
                                {"key", call.k},
                                {"value", call.v},
                                {"cum_seq_q", call.bounds_or_none()},
                                {"cum_seq_k", call.bounds_or_none()},
                                {"return_debug_mask", false}};
  add_form(arguments, call);
  const auto results = kForward.call(std::move(arguments));
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor(),
          results[3].toTensor()};
}

AttentionGradients run_backward(const Call& call, const at::Tensor& dout,
                                const Attended& forward) {
  LibraryArguments arguments = {
      {"grad_out", dout},         {"query", call.q},          {"key", call.k},
      {"value", call.v},          {"out", forward.out},       {"logsumexp", forward.lse},
      {"cum_seq_q", call.bounds}, {"cum_seq_k", call.bounds}, {"rng_state", forward.rng},
      {"unused", forward.unused}};
  add_form(arguments, call);
  const auto results = kBackward.call(std::move(arguments));
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
}

std::optional<int64_t> left_of(int64_t window) {
  return window == kNoWindow ? std::nullopt : std::optional(window - 1);
}

/// Returns the call for all keys at once.
Call whole(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
           const AttentionMask& mask) {
  const bool causal = !mask.document_end.defined();
  Call call{q, k, v, scale_of<double>(mask, q.size(3)), causal, left_of(mask.window)};
  if (!mask.documents.bounds.defined()) return call;
  call.q = q.flatten(0, 1), call.k = k.flatten(0, 1), call.v = v.flatten(0, 1);
  call.bounds = mask.documents.bounds;
  call.longest = mask.documents.longest;
  return call;
}

/// A run of the queries of a part and a run of the keys that these queries see. Each
/// query sees at least one key, and which keys are hidden follows from the ends of both
/// runs, as the kernels have it.
struct Run {
  int64_t query, queries;
  int64_t key, keys;
  bool causal;
  std::optional<int64_t> left;
};

std::vector<Run> runs_of(const AttentionPart& part) {
  const int64_t S = part.q.size(1), K = part.k.size(1);
  if (part.mask.document_end.defined()) return {{0, S, 0, K, false, {}}};
  // The offset is the place of query 0 among the keys.
  const int64_t offset = part.query_begin - part.key_begin;
  const int64_t window = part.mask.window;
  const auto first_key = [&](int64_t query) {
    return std::clamp<int64_t>(query + offset + 1 - std::min(window, kNoWindow), 0, K);
  };
  std::vector<Run> runs;
  // The queries whose own key is among these keys.
  const int64_t from = std::clamp<int64_t>(-offset, 0, S);
  const int64_t beyond = std::clamp<int64_t>(K - offset, from, S);
  if (beyond > from) {
    const int64_t key = first_key(from), end = beyond + offset;
    runs.push_back({from, beyond - from, key, end - key, true, left_of(window)});
  }
  // The queries behind all keys, as far as the window reaches back.
  const int64_t reach = window == kNoWindow ? S : K + window - 1 - offset;
  const int64_t end = std::clamp<int64_t>(reach, beyond, S);
  if (end > beyond) {
    const int64_t queries = end - beyond, key = first_key(beyond);
    std::optional<int64_t> left;
    // Counted for the last query, end - 1, from the last key.
    if (window != kNoWindow) left = K - 1 - (end - 1 + offset - window + 1);
    runs.push_back({beyond, queries, key, K - key, false, left});
  }
  return runs;
}

Call call_of(const AttentionPart& part, const Run& run) {
  return {part.q.narrow(1, run.query, run.queries),
          part.k.narrow(1, run.key, run.keys),
          part.v.narrow(1, run.key, run.keys),
          scale_of<double>(part.mask, part.q.size(3)),
          run.causal,
          run.left};
}

/// Throws an internal Error unless a part that begins a result has all its queries.
void check_first(const AttentionPart& part, const Run& run) {
  LH_ASSERT(run.queries == part.q.size(1), "the first part has {} queries of {}",
            run.queries, part.q.size(1));
}

/// Returns [B, Hq, n] in the shape that multiplies [B, n, Hq, D].
at::Tensor over_rows(const at::Tensor& x) { return x.transpose(1, 2).unsqueeze(-1); }

/// Merges `fresh` into `out` [B, n, Hq, D] and `lse` [B, Hq, n], fp32.
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

}  // namespace

bool supports_attention(const at::Tensor& q, const at::Tensor& k,
                        const AttentionMask& mask) {
  const bool documents = mask.document_start.defined() || mask.document_end.defined();
  const bool known = mask.documents.bounds.defined() && k.size(1) == q.size(1);
  return (!documents || known) && fits(q, mask);
}

bool supports_attention_part(const AttentionPart& part) {
  const AttentionMask& mask = part.mask;
  return !mask.document_start.defined() && !mask.document_end.defined() &&
         fits(part.q, mask);
}

std::string describe_attention(at::ScalarType type, at::Device device) {
  if (device.is_cpu()) return "own";
  if (type == at::kFloat) return "operations of LibTorch";
  const std::string why = obstacle_of(device, kForward, kBackward);
  if (why.empty()) {
    return cudnn_obstacle(device).empty() &&
                   !at::globalContext().deterministicAlgorithms()
               ? "cuDNN where causality alone hides keys, else LibTorch's flash kernels"
               : "LibTorch's flash kernels";
  }
  return fmt::format("operations of LibTorch ({})", why);
}

Attended attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionMask& mask) {
  if (takes_cudnn(q, k, mask))
    return cudnn_forward(q, k, v, scale_of<double>(mask, q.size(3)));
  Attended result = run_forward(whole(q, k, v, mask));
  result.out = result.out.contiguous().view(q.sizes());
  return result;
}

AttentionGradients attention_backward(const at::Tensor& dout, const at::Tensor& q,
                                      const at::Tensor& k, const at::Tensor& v,
                                      const AttentionMask& mask,
                                      const Attended& forward) {
  if (takes_cudnn(q, k, mask)) {
    return cudnn_backward(dout, q, k, v, scale_of<double>(mask, q.size(3)), forward);
  }
  const Call call = whole(q, k, v, mask);
  Attended of_call = forward;
  of_call.out = forward.out.view(call.q.sizes());
  const AttentionGradients flat =
      run_backward(call, dout.contiguous().view(call.q.sizes()), of_call);
  return {flat.dq.view(q.sizes()), flat.dk.view(k.sizes()), flat.dv.view(v.sizes())};
}

void attention_part_forward(const AttentionPart& part, at::Tensor& out, at::Tensor& lse) {
  for (const Run& run : runs_of(part)) {
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

void attention_part_backward(const AttentionPart& part, const at::Tensor& dout,
                             const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                             at::Tensor& dk, at::Tensor& dv) {
  // There is no dropout, so the kernel does not read the random state of a forward.
  const at::Tensor rng =
      at::empty({2}, at::TensorOptions(at::kUInt64).device(part.q.device()));
  for (const Run& run : runs_of(part)) {
    const auto rows = [&](const at::Tensor& x) {
      return x.narrow(1, run.query, run.queries).contiguous();
    };
    const Attended forward{rows(out), lse.narrow(2, run.query, run.queries).contiguous(),
                           rng, at::empty({0}, rng.options())};
    const AttentionGradients fresh =
        run_backward(call_of(part, run), rows(dout), forward);
    if (dq.defined()) {
      dq.narrow(1, run.query, run.queries).add_(fresh.dq);
    } else {
      check_first(part, run);
      dq = fresh.dq.to(at::kFloat);
    }
    dk.narrow(1, run.key, run.keys).add_(fresh.dk);
    dv.narrow(1, run.key, run.keys).add_(fresh.dv);
  }
}

}  // namespace longhaul::ops::library
