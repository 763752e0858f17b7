// Tests inputs that are not kept for the backward but made again there.
#include <c10/core/StorageImpl.h>

#include "longhaul/ops/gated_product.h"
#include "longhaul/ops/linear/linear.h"
#include "longhaul/ops/recomputed.h"
#include "tests/support/parameters.h"

namespace longhaul::ops {
namespace {

/// Gives copies of a tensor and counts them.
struct Copied : SavedInput {
  explicit Copied(at::Tensor x) : source(std::move(x)) {}
  at::Tensor make() override {
    ++made;
    return source.clone();
  }
  at::Tensor source;
  int made = 0;
};

bool is_alive(const c10::weak_intrusive_ptr<c10::StorageImpl>& storage) {
  return !storage.expired();
}

TEST(SavedInput, IsMadeOnceForTheLinearLayersThatShareIt) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({12, 8}), dy = at::randn({12, 6});
  const at::Tensor w1 = at::randn({6, 8}), w2 = at::randn({6, 8});
  for (const bool immediate : {true, false}) {
    const auto queue = std::make_shared<WeightGradients>();
    queue->set_immediate(immediate);
    const auto plain1 = bound(w1), plain2 = bound(w2), again1 = bound(w1),
               again2 = bound(w2);
    const at::Tensor in = leaf(x);
    backward(linear(in, plain1, queue) + linear(in, plain2, queue), dy);
    const at::Tensor mine = leaf(x);
    const auto copied = std::make_shared<Copied>(x);
    const LinearInput input{mine, copied};
    backward(linear(input, again1, queue) + linear(input, again2, queue), dy);
    EXPECT_EQ(copied->made, immediate ? 1 : 0);
    queue->drain();
    EXPECT_EQ(copied->made, 1);
    EXPECT_TRUE(at::equal(in.grad(), mine.grad()));
    EXPECT_TRUE(at::equal(plain1->grad(), again1->grad()));
    EXPECT_TRUE(at::equal(plain2->grad(), again2->grad()));
    EXPECT_ANY_THROW(copied->take()) << "a take without a hold";
  }
}

TEST(SavedInput, IsNotMadeForAFrozenWeight) {
  const auto weight = bound(at::ones({3, 4}));
  weight->set_frozen(true);
  const at::Tensor x = leaf(at::ones({2, 4}));
  const auto copied = std::make_shared<Copied>(x);
  backward(linear({x, copied}, weight, std::make_shared<WeightGradients>()),
           at::ones({2, 3}));
  EXPECT_EQ(copied->made, 0);
  EXPECT_EQ(x.grad().sum().item<float>(), 24.0F);
}

TEST(Linear, KeepsItsInputUnlessTheWeightIsFrozen) {
  for (const bool frozen : {false, true}) {
    const auto weight = bound(at::ones({3, 4}));
    weight->set_frozen(frozen);
    const at::Tensor x = leaf(at::ones({2, 4}));
    c10::weak_intrusive_ptr<c10::StorageImpl> storage(
        c10::intrusive_ptr<c10::StorageImpl>{});
    at::Tensor y;
    {
      const at::Tensor input = x.neg();  // keeps nothing
      storage = input.storage().getWeakStorageImpl();
      y = linear(input, weight, std::make_shared<WeightGradients>());
    }
    EXPECT_EQ(is_alive(storage), !frozen);
    backward(y, at::ones({2, 3}));
    EXPECT_EQ(x.grad().sum().item<float>(), -24.0F);
    EXPECT_EQ(weight->grad().sum().item<float>(), frozen ? 0.0F : -24.0F);
  }
}

TEST(WeightGradients, ThatWaitKeepNothingOfTheGraphBehindTheirInput) {
  const auto weight = bound(at::ones({5, 16}));
  const auto queue = std::make_shared<WeightGradients>();
  queue->set_immediate(false);
  c10::weak_intrusive_ptr<c10::StorageImpl> storage(
      c10::intrusive_ptr<c10::StorageImpl>{});
  {
    const at::Tensor x = leaf(at::ones({10, 16}));
    storage = x.storage().getWeakStorageImpl();
    backward(linear(x * 2, weight, queue), at::ones({10, 5}));
  }
  EXPECT_FALSE(is_alive(storage));
  queue->drain();
  EXPECT_EQ(weight->grad().sum().item<float>(), 10 * 2 * 5 * 16);
}

struct Product {
  std::vector<at::Tensor> results;
  int calls = 0;
  bool alive_after_forward = true;
  bool alive_after_backward = true;
};

/// Runs W f(a, b) with f = swiglu, counts the calls of f and watches the memory of its
/// result.
Product run_product(bool again, bool immediate, bool fused) {
  at::manual_seed(2);
  const at::Tensor a = leaf(at::randn({10, 16})), b = leaf(at::randn({10, 16}));
  const auto weight = bound(at::randn({5, 16}));
  const auto queue = std::make_shared<WeightGradients>();
  queue->set_immediate(immediate);
  Product run;
  const at::Tensor dy = at::randn({10, 5});
  c10::weak_intrusive_ptr<c10::StorageImpl> storage(
      c10::intrusive_ptr<c10::StorageImpl>{});
  const auto f = [&](const std::vector<at::Tensor>& t) {
    ++run.calls;
    const at::Tensor y = gated_product(t[0], t[1], Activation::Silu, fused);
    storage = y.storage().getWeakStorageImpl();
    return y;
  };
  at::Tensor y;
  {
    const LinearInput product = again ? recomputed(f, {a, b}) : LinearInput(f({a, b}));
    y = linear(product, weight, queue);
  }
  run.alive_after_forward = is_alive(storage);
  backward(y, dy);
  queue->drain();
  run.alive_after_backward = is_alive(storage);
  run.results = {y.detach(), a.grad(), b.grad(), weight->grad()};
  return run;
}

TEST(Recomputed, IsBitwiseTheSameAndKeepsNeitherResultNorInside) {
  for (const bool fused : {true, false}) {
    for (const bool immediate : {true, false}) {
      const Product plain = run_product(false, immediate, fused);
      const Product again = run_product(true, immediate, fused);
      for (size_t i = 0; i < plain.results.size(); ++i) {
        EXPECT_TRUE(at::equal(plain.results[i], again.results[i])) << i;
      }
      EXPECT_EQ(plain.calls, 1);
      EXPECT_EQ(again.calls, 2);
      EXPECT_TRUE(plain.alive_after_forward);
      EXPECT_FALSE(again.alive_after_forward);
      EXPECT_FALSE(again.alive_after_backward) << "immediate " << immediate;
    }
  }
}

TEST(Recomputed, RunsOnceWithoutGradMode) {
  const at::NoGradGuard no_grad;
  int calls = 0;
  const LinearInput y = recomputed(
      [&](const std::vector<at::Tensor>& t) {
        ++calls;
        return t[0] + t[1] + t[2];
      },
      {at::ones({2}), at::ones({2}), at::ones({2})});
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(y.again, nullptr);
  EXPECT_EQ(y.x.sum().item<float>(), 6.0F);
}

}  // namespace
}  // namespace longhaul::ops
