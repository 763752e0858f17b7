#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// Computes what LibTorch's operators of flash attention compute, as plain mathematics on
// the host. The devices that tests make up use these kernels.

namespace longhaul::ops::reference {

/// A boxed call's arguments by their names.
struct Given {
  const c10::OperatorHandle& op;
  const torch::jit::Stack& stack;

  /// Returns the argument, or null if the operator has no such argument.
  const c10::IValue* find(const std::string& name) const {
    const auto& all = op.schema().arguments();
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].name() == name) return &stack[stack.size() - all.size() + i];
    }
    return nullptr;
  }
  const c10::IValue& operator[](const std::string& name) const {
    if (const c10::IValue* value = find(name)) return *value;
    throw std::runtime_error("no argument " + name);
  }
  bool has(const std::string& name) const {
    const c10::IValue* value = find(name);
    return value != nullptr && !value->isNone() &&
           (!value->isTensor() || value->toTensor().defined());
  }
  void give(torch::jit::Stack* results, std::vector<c10::IValue> values) const {
    results->resize(results->size() - op.schema().arguments().size());
    results->insert(results->end(), values.begin(), values.end());
  }
};

/// One call of either operator; `wide` brings an argument to the host, in fp32.
class FlashCall {
 public:
  using Wide = std::function<at::Tensor(const std::string& name)>;

  FlashCall(const Given& given, const Wide& wide)
      : q_(wide("query")),
        k_(wide("key")),
        v_(wide("value")),
        causal_(given["is_causal"].toBool()),
        left_(given.has("window_size_left") ? given["window_size_left"].toInt() : -1),
        right_(given.has("window_size_right") ? given["window_size_right"].toInt() : -1),
        scale_(given["scale"].toDouble()) {
    if (!given.has("cum_seq_q")) return;
    const at::Tensor bounds = wide("cum_seq_q").to(at::kLong);
    for (int64_t i = 0; i + 1 < bounds.numel(); ++i) {
      const auto from = bounds[i].item<int64_t>(), to = bounds[i + 1].item<int64_t>();
      TORCH_CHECK(to - from <= given["max_q"].toInt(), "a document is too long");
      documents_.emplace_back(from, to - from);
    }
    TORCH_CHECK(bounds[-1].item<int64_t>() == q_.size(0), "rows of no document");
  }

  bool of_documents() const { return !documents_.empty(); }

  /// Returns the result and the log-sum-exp. Their shapes are [B, S, H, D] and [B, H, S],
  /// or [T, H, D] and [H, T] for documents.
  std::pair<at::Tensor, at::Tensor> forward() const {
    if (!of_documents()) return forward(q_, k_, v_);
    at::Tensor out = at::empty_like(q_), lse = at::empty({q_.size(1), q_.size(0)});
    for (const auto& [from, n] : documents_) {
      const auto [y, l] =
          forward(rows(q_, from, n), rows(k_, from, n), rows(v_, from, n));
      rows(out, from, n).copy_(y);
      lse.narrow(1, from, n).copy_(l[0]);
    }
    return {out, lse};
  }

  /// Returns dq, dk and dv.
  std::vector<at::Tensor> backward(const at::Tensor& dout, const at::Tensor& out,
                                   const at::Tensor& lse) const {
    if (!of_documents()) return backward(q_, k_, v_, dout, out, lse);
    std::vector<at::Tensor> grads = {at::empty_like(q_), at::empty_like(k_),
                                     at::empty_like(v_)};
    for (const auto& [from, n] : documents_) {
      const auto parts = backward(rows(q_, from, n), rows(k_, from, n), rows(v_, from, n),
                                  rows(dout, from, n), rows(out, from, n),
                                  lse.narrow(1, from, n).unsqueeze(0));
      for (size_t i = 0; i < grads.size(); ++i) rows(grads[i], from, n).copy_(parts[i]);
    }
    return grads;
  }

 private:
  static at::Tensor rows(const at::Tensor& x, int64_t from, int64_t n) {
    return x.narrow(0, from, n).unsqueeze(0);
  }
  static at::Tensor heads(const at::Tensor& x, int64_t of) {
    return x.transpose(1, 2).repeat_interleave(of / x.size(2), 1);
  }
  at::Tensor scores(const at::Tensor& q, const at::Tensor& k) const {
    const int64_t S = q.size(1), K = k.size(1), Hq = q.size(2);
    at::Tensor s = heads(q, Hq).matmul(heads(k, Hq).transpose(2, 3)) * scale_;
    const at::Tensor behind =
        at::arange(K).unsqueeze(0) - at::arange(S).unsqueeze(1) - (K - S);
    at::Tensor hidden = at::zeros({S, K}, at::kBool);
    if (causal_ || right_ >= 0) hidden = behind > (causal_ ? 0 : right_);
    if (left_ >= 0) hidden = hidden.logical_or(behind < -left_);
    TORCH_CHECK(!hidden.all(1).any().item<bool>(), "a query sees no key");
    return s.masked_fill(hidden, -std::numeric_limits<float>::infinity());
  }
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& q, const at::Tensor& k,
                                            const at::Tensor& v) const {
    const at::Tensor s = scores(q, k);
    return {at::softmax(s, -1).matmul(heads(v, q.size(2))).transpose(1, 2).contiguous(),
            at::logsumexp(s, -1)};
  }
  std::vector<at::Tensor> backward(const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const at::Tensor& dout,
                                   const at::Tensor& out, const at::Tensor& lse) const {
    const int64_t Hq = q.size(2), Hkv = k.size(2);
    const at::Tensor p = at::exp(scores(q, k) - lse.unsqueeze(-1));
    const at::Tensor dy = heads(dout, Hq);
    const at::Tensor delta = (dy * heads(out, Hq)).sum({-1}, true);
    const at::Tensor ds = p * (dy.matmul(heads(v, Hq).transpose(2, 3)) - delta) * scale_;
    const auto grouped = [&](const at::Tensor& x) {  // [B, Hq, K, D] -> [B, K, Hkv, D]
      return x.view({x.size(0), Hkv, Hq / Hkv, x.size(2), x.size(3)})
          .sum({2})
          .transpose(1, 2);
    };
    return {ds.matmul(heads(k, Hq)).transpose(1, 2),
            grouped(ds.transpose(2, 3).matmul(heads(q, Hq))),
            grouped(p.transpose(2, 3).matmul(dy))};
  }

  at::Tensor q_, k_, v_;
  bool causal_;
  int64_t left_, right_;
  double scale_;
  std::vector<std::pair<int64_t, int64_t>> documents_;  ///< first row and length
};

}  // namespace longhaul::ops::reference
