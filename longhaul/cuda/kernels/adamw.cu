#include "longhaul/cuda/kernels/elements.cuh"

namespace longhaul::optim::cuda {
namespace {

/// An update of AdamW, which update_kernel() runs.
template <typename G, typename P, typename M, typename W, typename R>
struct AdamW {
  const G* grad;
  P* master;
  M *exp_avg, *exp_avg_sq;
  W* weight;
  AdamWScalars s;
  R rounding;

  template <int N>
  __device__ void at(int64_t i) const {
    const auto g = load<N>(grad + i);
    auto p = load<N>(master + i);
    auto m = load<N>(exp_avg + i);
    auto v = load<N>(exp_avg_sq + i);
    typename R::template Walk<N> walk(rounding, i);
    float moved[N];
    for (int j = 0; j < N; ++j) {
      const auto [first, second] =
          next_moments(widened(g.of[j]), widened(m.of[j]), widened(v.of[j]), s);
      moved[j] = adamw_moved(widened(p.of[j]), first, second, s);
      walk.template assign<kRoundExpAvg>(m.of[j], first);
      walk.template assign<kRoundExpAvgSq>(v.of[j], second);
      walk.template assign<kRoundMaster>(p.of[j], moved[j]);
      walk.next();
    }
    store(exp_avg + i, m);
    store(exp_avg_sq + i, v);
    store(master + i, p);
    store_weight<N>(weight, i, moved);
  }
};

/// The second pass of LAMB.
template <typename P, typename M, typename W, typename R>
struct LambApply {
  P* master;
  const M *exp_avg, *exp_avg_sq;
  W* weight;
  AdamWScalars s;
  LambRate of;
  const double* rate;
  R rounding;

  __device__ void begin() { s = at_rate(s, of, *rate); }
  template <int N>
  __device__ void at(int64_t i) const {
    auto p = load<N>(master + i);
    const auto m = load<N>(exp_avg + i);
    const auto v = load<N>(exp_avg_sq + i);
    typename R::template Walk<N> walk(rounding, i);
    float moved[N];
    for (int j = 0; j < N; ++j) {
      moved[j] = lamb_moved(widened(p.of[j]), widened(m.of[j]), widened(v.of[j]), s);
      walk.template assign<kRoundMaster>(p.of[j], moved[j]);
      walk.next();
    }
    store(master + i, p);
    store_weight<N>(weight, i, moved);
  }
};

}  // namespace

void enqueue_adamw(const AdamWRange& r, const AdamWScalars& s, int64_t update,
                   Stream stream) {
  with_weight(r, [&]<typename P, typename W>(P* master, W* weight) {
    const auto rounding = rounding_for<P>(r, update);
    using R = std::remove_const_t<decltype(rounding)>;
    with_type(r.grad_dtype, [&]<typename G>(G*) {
      with_type(r.moments_dtype, [&]<typename M>(M*) {
        const AdamW<G, P, M, W, R> of{static_cast<const G*>(r.grad),
                                      master,
                                      static_cast<M*>(r.exp_avg),
                                      static_cast<M*>(r.exp_avg_sq),
                                      weight,
                                      s,
                                      rounding};
        enqueue_update(
            "adamw", of, r.count,
            lead_of(rounding, of.grad, of.master, of.exp_avg, of.exp_avg_sq, weight),
            stream);
      });
    });
  });
}

void enqueue_lamb_apply(const AdamWRange& r, const AdamWScalars& s, const LambRate& of,
                        const double* rate, int64_t update, Stream stream) {
  with_weight(r, [&]<typename P, typename W>(P* master, W* weight) {
    const auto rounding = rounding_for<P>(r, update);
    using R = std::remove_const_t<decltype(rounding)>;
    with_type(r.moments_dtype, [&]<typename M>(M*) {
      const LambApply<P, M, W, R> apply{master,
                                        static_cast<const M*>(r.exp_avg),
                                        static_cast<const M*>(r.exp_avg_sq),
                                        weight,
                                        s,
                                        of,
                                        rate,
                                        rounding};
      enqueue_update(
          "lamb_apply", apply, r.count,
          lead_of(rounding, apply.master, apply.exp_avg, apply.exp_avg_sq, weight),
          stream);
    });
  });
}

}  // namespace longhaul::optim::cuda
