#include "longhaul/parallel/expert/dispatch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/diff.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <numeric>

#include "longhaul/ops/common/node.h"
#include "longhaul/ops/experts/routed_rows.h"
#include "longhaul/tensor/buffer_of.h"

// Shapes: R rows of this rank's tokens, A rows that arrive here, H hidden.

namespace longhaul::parallel {
namespace {

using comm::Communicator;
using ops::AutogradContext;
using ops::tensor_list;
using ops::Variable;

/// An exchange under way, with the tensors that it reads and writes.
struct RowExchange {
  comm::WorkPtr work;
  std::vector<at::Tensor> sent, received;

  std::vector<at::Tensor> wait() {
    if (work) work->order();
    sent.clear();
    return std::exchange(received, {});
  }
};

struct TokenWay : nn::ExpertDispatch::Way {
  Communicator* ep = nullptr;
  std::vector<int64_t> sent, received;  ///< numbers of rows to and from each rank
  at::Tensor offsets;        ///< int32 [experts here + 1], of the rows that have arrived
  ops::RoutedRows sorted;    ///< takes rows from the order of arrival to that of experts
  at::Tensor rows, weights;  ///< what arrives, in the order of arrival
  RowExchange forward, backward;
};

using TokenWayPtr = std::shared_ptr<TokenWay>;

TokenWay& way_of(const nn::ExpertDispatch::WayPtr& way) {
  return static_cast<TokenWay&>(*way);
}

/// Starts to send rows to the ranks, `sent[r]` to rank r, and to receive `received[r]`
/// from rank r. Each of `tensors` has an entry for each row along its first dim.
RowExchange start_exchange(Communicator& ep, const std::vector<at::Tensor>& tensors,
                           const std::vector<int64_t>& sent,
                           const std::vector<int64_t>& received) {
  using Kind = comm::Transfer::Kind;
  RowExchange exchange;
  std::vector<comm::Transfer> transfers;
  const int64_t arriving = std::accumulate(received.begin(), received.end(), int64_t{0});
  for (const at::Tensor& tensor : tensors) {
    exchange.sent.push_back(tensor.contiguous());
    auto shape = tensor.sizes().vec();
    shape[0] = arriving;
    exchange.received.push_back(at::empty(shape, tensor.options()));
    int64_t from = 0, to = 0;
    for (int r = 0; r < ep.size(); ++r) {
      const int64_t out = sent[static_cast<size_t>(r)];
      const int64_t in = received[static_cast<size_t>(r)];
      const at::Tensor mine = exchange.sent.back().narrow(0, from, out);
      const at::Tensor theirs = exchange.received.back().narrow(0, to, in);
      if (r == ep.rank()) {
        at::Tensor(theirs).copy_(mine);
      } else {
        if (out > 0) transfers.push_back({Kind::Send, r, tensor::buffer_of(mine)});
        if (in > 0) transfers.push_back({Kind::Recv, r, tensor::buffer_of(theirs)});
      }
      from += out;
      to += in;
    }
  }
  if (!transfers.empty()) exchange.work = ep.send_recv(std::move(transfers));
  return exchange;
}

/// Tells every rank how many rows come to it, and plans how arriving rows are sorted.
/// Collective.
void plan_way(TokenWay& way, const at::Tensor& offsets,
              const TokenDispatch::ToHost& to_host) {
  const int64_t ranks = way.ep->size();
  const at::Tensor counts = at::diff(offsets.to(at::kLong)).contiguous();
  const int64_t here = counts.size(0) / ranks;
  at::Tensor arriving = at::empty_like(counts);  // [ranks, here]
  way.ep->all_to_all(tensor::buffer_of(counts), tensor::buffer_of(arriving))->order();
  const at::Tensor host = to_host(at::cat({counts, arriving}));
  const auto* leaving_to = host.const_data_ptr<int64_t>();
  const auto* coming_from = leaving_to + counts.size(0);
  for (int64_t r = 0; r < ranks; ++r) {
    way.sent.push_back(
        std::accumulate(leaving_to + r * here, leaving_to + (r + 1) * here, int64_t{0}));
    way.received.push_back(std::accumulate(coming_from + r * here,
                                           coming_from + (r + 1) * here, int64_t{0}));
  }
  // Rows arrive by rank and then by expert; they are wanted by expert and then by rank.
  const int64_t all =
      std::accumulate(way.received.begin(), way.received.end(), int64_t{0});
  // From pinned memory the plan is copied to a device without a wait.
  const at::Device device = offsets.device();
  const auto plan = [&](at::IntArrayRef sizes, at::ScalarType type) {
    return at::empty(sizes, at::TensorOptions(type).pinned_memory(!device.is_cpu()));
  };
  const at::Tensor order = plan({all}, at::kLong), place = plan({all, 1}, at::kLong);
  const at::Tensor first = plan({here + 1}, at::kInt);
  first.mutable_data_ptr<int32_t>()[0] = 0;
  auto* to = order.mutable_data_ptr<int64_t>();
  auto* back = place.mutable_data_ptr<int64_t>();
  std::vector<int64_t> next(static_cast<size_t>(ranks * here));
  std::exclusive_scan(coming_from, coming_from + ranks * here, next.begin(), int64_t{0});
  int64_t row = 0;
  for (int64_t e = 0; e < here; ++e) {
    for (int64_t r = 0; r < ranks; ++r) {
      const int64_t begin = next[static_cast<size_t>(r * here + e)];
      for (int64_t i = 0; i < coming_from[r * here + e]; ++i) {
        back[begin + i] = row;
        to[row++] = begin + i;
      }
    }
    first.mutable_data_ptr<int32_t>()[e + 1] = static_cast<int32_t>(row);
  }
  const auto there = [&](const at::Tensor& numbers) {
    return numbers.to(device, /*non_blocking=*/true);
  };
  way.offsets = there(first);
  way.sorted = {there(order), there(place), way.offsets};
}

/// Starts the exchange of the forward, and waits for that of the backward.
struct SendNode : ops::Function<SendNode> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& rows,
                             const at::Tensor& weights, TokenWayPtr way) {
    way->forward = start_exchange(*way->ep, {rows, weights}, way->sent, way->received);
    tensor_list arriving = way->forward.received;
    ops::save(ctx, std::move(way));
    return arriving;
  }
  static tensor_list backward(AutogradContext* ctx, const tensor_list& /*grads*/) {
    const auto got = ops::saved<TokenWayPtr>(ctx)->backward.wait();
    return {got[0], got[1], Variable()};
  }
};

/// Waits for the exchange of the forward, and starts that of the backward.
struct ArriveNode : ops::Function<ArriveNode> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& rows,
                             const at::Tensor& weights, TokenWayPtr way) {
    way->forward.wait();
    ops::save(ctx, std::move(way));
    return {rows.detach(), weights.detach()};
  }
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    auto& way = *ops::saved<TokenWayPtr>(ctx);
    way.backward = start_exchange(*way.ep, {grads[0], grads[1]}, way.received, way.sent);
    return {grads[0], grads[1], Variable()};  // SendNode returns gradients that arrive
  }
};

struct BackNode : ops::Function<BackNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows,
                            TokenWayPtr way) {
    at::Tensor back =
        start_exchange(*way->ep, {rows}, way->received, way->sent).wait()[0];
    ops::save(ctx, std::move(way));
    return back;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    auto& way = *ops::saved<TokenWayPtr>(ctx);
    return {start_exchange(*way.ep, {grads[0]}, way.sent, way.received).wait()[0],
            Variable()};
  }
};

}  // namespace

nn::ExpertDispatch::WayPtr TokenDispatch::send(at::Tensor rows, const at::Tensor& weights,
                                               const at::Tensor& offsets) const {
  const auto way = std::make_shared<TokenWay>();
  way->ep = &ep_;
  plan_way(*way, offsets, to_host_);
  const tensor_list arriving = SendNode::apply(std::move(rows), weights, way);
  way->rows = arriving[0];
  way->weights = arriving[1];
  return way;
}

nn::ExpertDispatch::Arrived TokenDispatch::arrive(const WayPtr& way) const {
  TokenWay& here = way_of(way);
  const tensor_list got =
      ArriveNode::apply(std::exchange(here.rows, {}), std::exchange(here.weights, {}),
                        std::static_pointer_cast<TokenWay>(way));
  const at::Tensor weights = ops::gather_rows(got[1].unsqueeze(1), here.sorted, true);
  return {ops::gather_rows(got[0], here.sorted, true), weights.squeeze(1), here.offsets};
}

at::Tensor TokenDispatch::back(const WayPtr& way, at::Tensor rows) const {
  // Each sum of sum_rows() has only one row here, so that the rows are only put into the
  // order of arrival. The source rows are freed before the exchange.
  rows = ops::sum_rows(rows, way_of(way).sorted, true);
  return BackNode::apply(std::move(rows), std::static_pointer_cast<TokenWay>(way));
}

}  // namespace longhaul::parallel
