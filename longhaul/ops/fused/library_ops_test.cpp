// Tests that attention and weight gradients call the operators that a device registers.
// The device here is a fake one, whose kernels are plain tensor mathematics.
#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/ops/attention/attention.h"
#include "longhaul/ops/embedding.h"
#include "longhaul/ops/fused/device_precision.h"
#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/linear/weight_gradients.h"
#include "tests/support/checked_device.h"
#include "tests/support/flash_reference.h"
#include "tests/support/parameters.h"

namespace longhaul::ops {
namespace {

using reference::FlashCall, reference::Given;
using testing::kDevice, testing::make_device, testing::waits;
using torch::jit::Stack;

/// Returns the argument of this name on the host, in fp32.
at::Tensor wide(const Given& given, const std::string& name) {
  return testing::host_view(given[name].toTensor()).to(at::kFloat);
}

FlashCall flash_call(const Given& given) {
  return {given, [&](const std::string& name) { return wide(given, name); }};
}

at::Tensor there(const at::Tensor& x, at::ScalarType type) {
  const at::Tensor y = at::empty(x.sizes(), x.options().dtype(type).device(kDevice));
  testing::host_view(y).copy_(x);
  return y;
}

int forwards = 0, backwards = 0, of_documents = 0;

void look_at(const Given& given) {
  const at::Tensor q = given["query"].toTensor(), k = given["key"].toTensor();
  TORCH_CHECK(q.scalar_type() == at::kBFloat16 && q.stride(-1) == 1 && k.stride(-1) == 1);
  TORCH_CHECK(given["dropout_p"].toDouble() == 0.0);
  TORCH_CHECK(k.size(-2) < q.size(-2) || q.size(-2) != 8, "keys were copied for heads");
  if (!given.has("cum_seq_q")) return;
  const at::Tensor bounds = given["cum_seq_q"].toTensor();
  TORCH_CHECK(bounds.scalar_type() == at::kInt && bounds.is_contiguous());
}

void flash_forward(const c10::OperatorHandle& op, Stack* stack) {
  const Given given{op, *stack};
  look_at(given);
  ++forwards;
  const FlashCall call = flash_call(given);
  of_documents += call.of_documents() ? 1 : 0;
  const auto [out, lse] = call.forward();
  given.give(stack, {there(out, at::kBFloat16), there(lse.contiguous(), at::kFloat),
                     there(at::zeros({2}), at::kLong), there(at::zeros({1}), at::kLong),
                     at::Tensor()});
}

void flash_backward(const c10::OperatorHandle& op, Stack* stack) {
  const Given given{op, *stack};
  look_at(given);
  ++backwards;
  std::vector<c10::IValue> results;
  for (const at::Tensor& g : flash_call(given).backward(
           wide(given, "grad_out"), wide(given, "out"), wide(given, "logsumexp"))) {
    results.emplace_back(there(g.contiguous(), at::kBFloat16));
  }
  given.give(stack, std::move(results));
}

/// While an object lives, the fake device has flash kernels.
struct FlashKernels {
  FlashKernels() {
    make_device();
    forwards = backwards = of_documents = 0;
    library.impl("_flash_attention_forward",
                 torch::CppFunction::makeFromBoxedFunction<&flash_forward>());
    library.impl("_flash_attention_backward",
                 torch::CppFunction::makeFromBoxedFunction<&flash_backward>());
  }
  torch::Library library{torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1,
                         __FILE__, __LINE__};
};

struct Case {
  std::string name;
  int64_t Hq = 4, Hkv = 4, S = 20, K = 20;
  AttentionProblem mask = {};
};

/// Returns the result and the gradients of attention, on the host.
std::vector<at::Tensor> attended(const Case& c, bool fused) {
  at::manual_seed(11);
  const int64_t B = 2, D = 16;
  const auto random = [&](int64_t length, int64_t heads) {
    return at::randn({B, length, heads, D}).to(at::kBFloat16);
  };
  std::vector<at::Tensor> in = {random(c.S, c.Hq), random(c.K, c.Hkv),
                                random(c.K, c.Hkv)};
  const at::Tensor dy = random(c.S, c.Hq).to(kDevice);
  for (at::Tensor& x : in) x = x.to(kDevice).set_requires_grad(true);
  AttentionProblem mask = c.mask;
  for (at::Tensor* t :
       {&mask.document_start, &mask.document_end, &mask.documents.bounds}) {
    if (t->defined()) *t = t->to(kDevice);
  }
  waits.take();
  const at::Tensor y = attention(in[0], {in[1], in[2]}, mask, fused);
  backward(y, dy);
  EXPECT_TRUE(waits.take().empty()) << c.name;
  std::vector<at::Tensor> out = {y.detach().cpu()};
  for (const at::Tensor& x : in) out.push_back(x.grad().cpu());
  return out;
}

AttentionProblem documents(bool both_sides) {
  AttentionProblem mask;
  const std::vector<int32_t> bounds = {0, 7, 20, 24, 40};
  mask.document_start = at::zeros({2, 20}, at::kInt);
  at::Tensor end = at::zeros({2, 20}, at::kInt);
  for (size_t i = 0; i < 4; ++i) {
    const int64_t row = bounds[i] / 20, first = bounds[i] % 20,
                  n = bounds[i + 1] - bounds[i];
    mask.document_start[row].narrow(0, first, n).fill_(first);
    end[row].narrow(0, first, n).fill_(first + n);
  }
  if (both_sides) mask.document_end = end;
  mask.documents = {at::tensor(bounds, at::kInt), 16};
  return mask;
}

/// Returns the mask with another scale of the scores than 1 / sqrt(16).
AttentionProblem scaled(AttentionProblem mask) {
  mask.scale = 0.6;
  return mask;
}

TEST(LibraryAttention, IsTheCompositeOneInEveryFormThatTheKernelsTake) {
  const FlashKernels kernels;
  AttentionProblem window;
  window.window = 6;
  AttentionProblem windowed_documents = documents(false);
  windowed_documents.window = 4;
  const std::vector<Case> cases = {
      {"causal"},
      {"groups of heads", 8, 2},
      {"cached keys", 8, 2, 5, 33},
      {"one query", 8, 2, 1, 12},
      {"window", 8, 2, 20, 20, window},
      {"window of cached keys", 4, 4, 5, 33, window},
      {"documents", 8, 2, 20, 20, documents(false)},
      {"documents and a window", 4, 2, 20, 20, windowed_documents},
      {"documents on both sides", 8, 2, 20, 20, documents(true)},
      {"a scale", 8, 2, 20, 20, scaled({})},
      {"documents and a scale", 8, 2, 20, 20, scaled(documents(false))},
  };
  for (const Case& c : cases) {
    const int before = forwards;
    const auto fused = attended(c, true);
    EXPECT_EQ(forwards, before + 1) << c.name;
    const auto plain = attended(c, false);
    EXPECT_EQ(forwards, before + 1) << c.name;
    for (size_t i = 0; i < plain.size(); ++i) {
      expect_close(fused[i], plain[i], 1e-2, c.name + " " + std::to_string(i));
    }
  }
  EXPECT_EQ(backwards, forwards);
  EXPECT_EQ(of_documents, 4);
}

TEST(LibraryAttention, LeavesToTheCompositeFormWhatItCannotDo) {
  const FlashKernels kernels;
  AttentionProblem unknown = documents(false);
  unknown.documents = {};
  AttentionProblem drops;
  drops.dropout = {0.1, 3, at::arange(2).to(kDevice), {}, 0};
  AttentionProblem capped;
  capped.score_cap = 2.0;
  for (const AttentionProblem& mask : {unknown, drops, capped})
    attended({"", 4, 4, 20, 20, mask}, true);
  EXPECT_EQ(forwards, 0);
  EXPECT_EQ(describe_attention({}, 64, 0.0, at::kBFloat16, kDevice),
            "LibTorch's flash kernels");
  EXPECT_EQ(describe_attention({}, 64, 0.1, at::kBFloat16, kDevice),
            "operations of LibTorch");
}

TEST(LibraryAttention, SaysWhyADeviceHasNone) {
  make_device();
  attended({"no kernel"}, true);
  EXPECT_EQ(describe_attention({}, 64, 0.0, at::kBFloat16, kDevice),
            "operations of LibTorch (aten::_flash_attention_forward has no kernel on "
            "counted)");
}

int cudnn_calls = 0;
const char* cudnn_failure = nullptr;  ///< what a call ends with

/// Returns the arguments of a cuDNN call as the reference takes them: on the host, fp32,
/// [B, S, H, D]. The operator has got [B, H, S, D].
FlashCall cudnn_call(const Given& given) {
  return {given,
          [&](const std::string& name) { return wide(given, name).transpose(1, 2); }};
}

at::Tensor by_heads(const at::Tensor& x) {
  return there(x.contiguous(), at::kBFloat16).transpose(1, 2);
}

void look_at_cudnn(const Given& given) {
  ++cudnn_calls;
  TORCH_CHECK(cudnn_failure == nullptr, cudnn_failure);
  const at::Tensor q = given["query"].toTensor(), k = given["key"].toTensor();
  TORCH_CHECK(q.scalar_type() == at::kBFloat16 && q.stride(-1) == 1 && k.stride(-1) == 1);
  TORCH_CHECK(q.size(2) == k.size(2) && q.size(1) == 8 && k.size(1) == 2);
  TORCH_CHECK(given["is_causal"].toBool() && given["dropout_p"].toDouble() == 0.0);
  TORCH_CHECK(!given.has("attn_bias") && !given.has("cum_seq_q"));
}

void cudnn_forward(const c10::OperatorHandle& op, Stack* stack) {
  const Given given{op, *stack};
  look_at_cudnn(given);
  TORCH_CHECK(given["compute_log_sumexp"].toBool());
  const auto [out, lse] = cudnn_call(given).forward();
  given.give(stack, {by_heads(out), there(lse.unsqueeze(-1), at::kFloat), at::Tensor(),
                     at::Tensor(), 0, 0, there(at::full({}, 5), at::kLong),
                     there(at::full({}, 6), at::kLong), at::Tensor()});
}

void cudnn_backward(const c10::OperatorHandle& op, Stack* stack) {
  const Given given{op, *stack};
  look_at_cudnn(given);
  const auto number = [&](const char* name) {
    return testing::host_view(given[name].toTensor()).item<int64_t>();
  };
  TORCH_CHECK(number("philox_seed") == 5 && number("philox_offset") == 6);
  TORCH_CHECK(given["max_q"].toInt() == 256 && given["max_k"].toInt() == 256);
  std::vector<c10::IValue> results;
  const auto rows = [&](const char* name) { return wide(given, name).transpose(1, 2); };
  for (const at::Tensor& g : cudnn_call(given).backward(
           rows("grad_out"), rows("out"), wide(given, "logsumexp").squeeze(-1))) {
    results.emplace_back(by_heads(g));
  }
  given.give(stack, std::move(results));
}

/// While an object lives, the fake device has cuDNN's operators besides flash kernels.
struct CudnnKernels : FlashKernels {
  CudnnKernels() {
    cudnn_calls = 0;
    library.impl("_scaled_dot_product_cudnn_attention",
                 torch::CppFunction::makeFromBoxedFunction<&cudnn_forward>());
    library.impl("_scaled_dot_product_cudnn_attention_backward",
                 torch::CppFunction::makeFromBoxedFunction<&cudnn_backward>());
  }
};

TEST(LibraryAttention, ThatCudnnRefusesIsToldWithTheWayOutAndAFaultOfTheDeviceStaysOne) {
  const CudnnKernels kernels;
  cudnn_failure = "cuDNN Frontend error: No execution plans support the graph.";
  try {
    attended({"causal", 8, 2, 256, 256}, true);
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("cuDNN refuses queries [2, 256, 8, 16] and keys [2, 256, 2, 16]: "
                        "cuDNN Frontend error: No execution plans support the graph.; "
                        "set run.deterministic = true to use LibTorch's flash kernels"),
              std::string::npos)
        << text;
  }
  cudnn_failure = "CUDA error: uncorrectable ECC error encountered";
  EXPECT_THROW(attended({"causal", 8, 2, 256, 256}, true), c10::Error);
  cudnn_failure = nullptr;
}

TEST(LibraryAttention, IsCudnnsForWholeCausalSequencesAlone) {
  const CudnnKernels kernels;
  AttentionProblem window;
  window.window = 100;
  const Case causal{"causal", 8, 2, 256, 256};
  for (const Case& c : {causal, Case{"scale", 8, 2, 256, 256, scaled({})}}) {
    const int before = cudnn_calls;
    const auto fused = attended(c, true), plain = attended(c, false);
    EXPECT_EQ(cudnn_calls, before + 2);
    EXPECT_EQ(forwards, 0);
    for (size_t i = 0; i < plain.size(); ++i) {
      expect_close(fused[i], plain[i], 1e-2, c.name + " " + std::to_string(i));
    }
  }
  for (const Case& other :
       {Case{"window", 8, 2, 256, 256, window}, Case{"cached keys", 8, 2, 256, 320},
        Case{"short", 8, 2, 192, 192}, Case{"odd", 8, 2, 260, 260},
        Case{"documents", 8, 2, 20, 20, documents(false)}}) {
    const int before = forwards;
    attended(other, true);
    EXPECT_EQ(forwards, before + 1) << other.name;
  }
  at::globalContext().setDeterministicAlgorithms(true, false);
  attended(causal, true);
  EXPECT_EQ(describe_attention({}, 64, 0.0, at::kBFloat16, kDevice),
            "LibTorch's flash kernels");
  at::globalContext().setDeterministicAlgorithms(false, false);
  EXPECT_EQ(cudnn_calls, 4);
  EXPECT_EQ(describe_attention({}, 64, 0.0, at::kBFloat16, kDevice),
            "cuDNN where causality alone hides keys, else LibTorch's flash kernels");
  EXPECT_EQ(describe_attention({}, 64, 0.0, at::kFloat, kDevice),
            "operations of LibTorch");
}

/// Expects that uneven parts of the keys, merged, give the result of all keys at once.
void expect_parts_merge(std::optional<int64_t> window, std::optional<double> scale = {}) {
  at::manual_seed(5);
  const int64_t B = 2, S = 24, Hq = 8, Hkv = 2, D = 16;
  const auto random = [&](int64_t heads) {
    return at::randn({B, S, heads, D}).to(at::kBFloat16).to(kDevice);
  };
  const at::Tensor q = random(Hq), k = random(Hkv), v = random(Hkv), dout = random(Hq);
  const auto fp32 = q.options().dtype(at::kFloat);
  const auto run = [&](bool fused) {
    std::vector<at::Tensor> results;
    // Queries [9, 24) of the sequence, as a rank has them.
    const int64_t first = 9, n = S - first;
    const auto rows = [&](const at::Tensor& x) { return x.narrow(1, first, n); };
    at::Tensor out = at::zeros({B, n, Hq, D}, fp32);
    at::Tensor lse = at::full({B, Hq, n}, -std::numeric_limits<float>::infinity(), fp32);
    at::Tensor dq = at::zeros_like(out), dk = at::zeros({B, S, Hkv, D}, fp32),
               dv = at::zeros_like(dk);
    const std::vector<int64_t> ends = {0, 5, 9, 16, 23, 24};
    const auto part = [&](size_t i) {
      const int64_t from = ends[i], keys = ends[i + 1] - from;
      return AttentionPart{rows(q),
                           {k.narrow(1, from, keys), v.narrow(1, from, keys)},
                           {{scale, window}},
                           first,
                           from,
                           fused};
    };
    for (size_t i = 0; i + 1 < ends.size(); ++i)
      attention_part_forward(part(i), out, lse);
    const at::Tensor rounded = out.to(at::kBFloat16);
    for (size_t i = 0; i + 1 < ends.size(); ++i) {
      const auto of_part = [&](const at::Tensor& x) {
        return x.narrow(1, ends[i], ends[i + 1] - ends[i]);
      };
      attention_part_backward(part(i), rows(dout), rounded, lse, dq,
                              {of_part(dk), of_part(dv)});
    }
    for (const at::Tensor& t : {out, lse, dq, dk, dv}) results.push_back(t.cpu());
    return results;
  };
  const auto fused = run(true), plain = run(false);
  for (size_t i = 0; i < plain.size(); ++i) {
    expect_close(fused[i], plain[i], 1e-2, "result " + std::to_string(i));
  }
}

TEST(LibraryAttention, PartsOfTheKeysMergeByTheirLogSumExp) {
  const FlashKernels kernels;
  expect_parts_merge({});
  // The kernels are called once for each of the two parts before the queries, and for the
  // last part. They are called twice for the other two, in which some queries have their
  // own key and later queries see all keys.
  EXPECT_EQ(forwards, 7);
  EXPECT_EQ(backwards, forwards);
  for (const int64_t window : {2, 3, 8, 15, 40}) expect_parts_merge(window);
  expect_parts_merge(8, 0.6);
}

// ---- Weight gradients

int addmms = 0, mms = 0;

void addmm(const c10::OperatorHandle& op, Stack* stack) {
  const Given given{op, *stack};
  TORCH_CHECK(given["mat1"].toTensor().scalar_type() != at::kHalf,
              "self and mat2 must have the same dtype");  // words of some versions
  ++addmms;
  const at::Tensor out = given["out"].toTensor();
  testing::host_view(out).addmm_(wide(given, "mat1"), wide(given, "mat2"));
  given.give(stack, {out});
}

void mm(const c10::OperatorHandle& op, Stack* stack) {
  const Given given{op, *stack};
  ++mms;
  given.give(stack, {there(wide(given, "self").mm(wide(given, "mat2")), at::kFloat)});
}

/// Returns the relative error of a weight gradient that is added to an accumulator that
/// is not empty.
double gradient_error(at::ScalarType type) {
  make_device();
  const int64_t T = 3000, N = 24, K = 40;
  at::manual_seed(2);
  const at::Tensor x = at::randn({T, K}).to(type), dy = at::randn({T, N}).to(type),
                   before = at::randn({N, K});
  const at::Tensor grad = before.to(kDevice);
  accumulate_weight_gradient(grad, x.to(kDevice), dy.to(kDevice));
  const at::Tensor exact =
      before.to(at::kDouble) + dy.to(at::kDouble).t().mm(x.to(at::kDouble));
  return ((grad.cpu() - exact).norm() / exact.norm()).item<double>();
}

TEST(WeightGradientsOnADevice, AreAddedWithoutARoundingWhateverKernelsThereAre) {
  make_device();
  EXPECT_LT(gradient_error(at::kBFloat16), 1e-6);  // widened: no kernel
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1,
                         __FILE__, __LINE__);
  library.impl("mm.dtype", torch::CppFunction::makeFromBoxedFunction<&mm>());
  EXPECT_LT(gradient_error(at::kBFloat16), 1e-6);
  EXPECT_EQ(mms, 1);
  library.impl("addmm.dtype_out", torch::CppFunction::makeFromBoxedFunction<&addmm>());
  EXPECT_LT(gradient_error(at::kBFloat16), 1e-6);
  EXPECT_EQ(mms, 1);
  EXPECT_EQ(addmms, 2);                        // a trial call, and the product
  EXPECT_LT(gradient_error(at::kHalf), 1e-6);  // the trial call throws
  EXPECT_EQ(mms, 2);
  EXPECT_EQ(addmms, 2);
  EXPECT_LT(gradient_error(at::kBFloat16), 1e-6);
  EXPECT_EQ(addmms, 3);  // no second trial call
}

template <typename... Operators>
void expect_of_the_cpu(const Operators&... operators) {
  const at::Tensor x = at::zeros({2, 8});
  EXPECT_TRUE(fused::supports(x, operators...));
  EXPECT_TRUE(fused::supports(x.to(at::kBFloat16), operators...));
  EXPECT_FALSE(fused::supports(x.to(at::kDouble), operators...));
  EXPECT_FALSE(fused::supports(x.to(at::kMeta), operators...));
}

TEST(FusedForms, AreOfADeviceThatHasTheirKernels) {
  expect_of_the_cpu(fused::op<kernels::RmsNormForward>,
                    fused::op<kernels::RmsNormBackward>);
  expect_of_the_cpu(fused::op<kernels::Rope>);
  expect_of_the_cpu(fused::op<kernels::GatedProductForward>,
                    fused::op<kernels::GatedProductBackward>);
  expect_of_the_cpu(fused::op<kernels::CrossEntropy>);
  expect_of_the_cpu(fused::op<kernels::CrossEntropyStatistics>,
                    fused::op<kernels::CrossEntropyGradient>);
  const at::Tensor x = at::zeros({2, 8});
  EXPECT_FALSE(fused::supports(
      x, fused::op<kernels::EmbeddingGradient>));  // a CPU uses index_add_
  EXPECT_FALSE(
      fused::supports(x, fused::op<kernels::GeluForward>));  // a CPU uses LibTorch's
  EXPECT_FALSE(fused::supports(x, fused::op<kernels::Rope>,
                               fused::op<kernels::GeluBackward>));  // only Rope is there
}

std::string schema_of(const char* name) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  return c10::toString(op.schema());
}

TEST(FusedForms, HaveTheSchemaThatTheirDeclarationSays) {
  EXPECT_EQ(schema_of("longhaul::rms_norm_forward"),
            "longhaul::rms_norm_forward(Tensor x, Tensor delta, Tensor weight, "
            "float eps, int form, Tensor(a!) sum, Tensor(b!) y, "
            "Tensor(c!) inverse_rms) -> ()");
  EXPECT_EQ(schema_of("longhaul::cross_entropy"),
            "longhaul::cross_entropy(Tensor(a!) logits, Tensor targets, float scale, "
            "float z_loss, bool want_gradient, Tensor(b!) cross_entropy, "
            "Tensor(c!) squared_lse) -> ()");
}

// ---- The gradient of an embedding

int embedding_gradients = 0;

/// Computes what the operator has to compute, and counts the calls.
void embedding_gradient_of_a_plugin(const at::Tensor& dy, const at::Tensor& rows,
                                    const at::Tensor& order, const at::Tensor& grad) {
  ++embedding_gradients;
  const at::Tensor from = testing::host_view(dy), into = testing::host_view(grad);
  ASSERT_TRUE(dy.is_contiguous());
  ASSERT_EQ(rows.scalar_type(), at::kLong);
  ASSERT_EQ(order.scalar_type(), at::kLong);
  const auto* row = static_cast<const int64_t*>(rows.data_ptr());
  const auto* token = static_cast<const int64_t*>(order.data_ptr());
  for (int64_t i = 0; i < rows.numel(); ++i) {
    const bool ascends = i == 0 || row[i - 1] < row[i] ||
                         (row[i - 1] == row[i] && token[i - 1] < token[i]);
    ASSERT_TRUE(ascends) << i;
    if (row[i] >= 0 && row[i] < grad.size(0)) into[row[i]].add_(from[token[i]]);
  }
}

/// Returns the gradient of rows [begin, end) of a table on a device, added to an
/// accumulator of ones.
at::Tensor embedding_gradient_on(at::Device device, int64_t begin, int64_t end,
                                 at::ScalarType type,
                                 std::optional<int64_t> padding = {}) {
  at::manual_seed(9);
  const at::Tensor ids = at::randint(0, 60, {400}, at::kInt);  // many more than once
  const at::Tensor dy = at::randn({400, 24}).to(type);
  const tensor::ParameterPtr table = tensor::make_parameter("table", {101, 24}, {});
  format::TensorSlice slice = table->slice();
  slice.offset[0] = begin;
  slice.extent[0] = end - begin;
  table->set_slice(slice);
  table->set_padding_row(padding);
  table->set_frozen(false);
  const at::Tensor weight = at::randn({end - begin, 24}).to(type);
  table->bind(weight.to(device), at::ones({end - begin, 24}).to(device));
  const at::Tensor y = embedding(ids.to(device), table);
  const at::Tensor gradient = dy.to(device);
  waits.take();
  backward(y, gradient);
  EXPECT_TRUE(waits.take().empty());
  return table->grad().cpu();
}

TEST(EmbeddingOnADevice, AddsARowsGradientsInTheOrderOfItsTokensWhereItHasTheKernel) {
  make_device();
  torch::Library library(torch::Library::IMPL, "longhaul", c10::DispatchKey::PrivateUse1,
                         __FILE__, __LINE__);
  library.impl("embedding_gradient", &embedding_gradient_of_a_plugin);
  embedding_gradients = 0;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const auto& [begin, end] :
         {std::pair<int64_t, int64_t>{0, 101}, {0, 34}, {34, 68}}) {
      const at::Tensor expected = embedding_gradient_on(at::kCPU, begin, end, type);
      EXPECT_TRUE(embedding_gradient_on(kDevice, begin, end, type).equal(expected));
      EXPECT_GT((expected - 1.0).abs().max().item<float>(), 3.0F);
      // Row 40 is in the ranges [0, 101) and [34, 68).
      const at::Tensor padded = embedding_gradient_on(at::kCPU, begin, end, type, 40);
      EXPECT_TRUE(embedding_gradient_on(kDevice, begin, end, type, 40).equal(padded));
      EXPECT_EQ(padded.equal(expected), begin > 40 || end <= 40);
      if (begin <= 40 && 40 < end) {
        EXPECT_TRUE(padded[40 - begin].eq(1.0).all().item<bool>());
      }
    }
  }
  EXPECT_EQ(embedding_gradients, 12);
}

TEST(EmbeddingOnADevice, IsTheCpusWithoutTheKernel) {
  make_device();
  embedding_gradients = 0;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 101}, {34, 68}}) {
    expect_close(embedding_gradient_on(kDevice, begin, end, at::kFloat),
                 embedding_gradient_on(at::kCPU, begin, end, at::kFloat), 1e-6, "table");
    expect_close(embedding_gradient_on(kDevice, begin, end, at::kFloat, 40),
                 embedding_gradient_on(at::kCPU, begin, end, at::kFloat, 40), 1e-6,
                 "table without row 40");
  }
  EXPECT_EQ(embedding_gradients, 0);
}

TEST(DevicePrecision, SumsOfProductsAreNotReduced) {
  set_device_precision();
  const auto wanted = at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK;
  EXPECT_EQ(at::globalContext().allowBF16ReductionCuBLAS(), wanted);
  EXPECT_EQ(at::globalContext().allowFP16ReductionCuBLAS(), wanted);
}

}  // namespace
}  // namespace longhaul::ops
