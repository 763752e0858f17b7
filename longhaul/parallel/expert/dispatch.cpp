#include "longhaul/parallel/expert/dispatch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <numeric>
#include <vector>

#include "longhaul/layout/sent_bytes.h"
#include "longhaul/ops/common/node.h"
#include "longhaul/tensor/buffer_of.h"

// Shapes: T tokens of this rank, R rows of them, A rows that arrive here, H hidden.

namespace longhaul::parallel {
namespace {

using comm::Communicator;
using ops::AutogradContext;
using ops::tensor_list;
using ops::Variable;

/// The numbers of rows that the ranks tell each other. The tensors are there until the
/// host knows the numbers.
struct TokenCounts : nn::ExpertDispatch::Counts {
  /// int64 [2, E]: the rows for each expert, and the rows that come from each rank for
  /// each expert here.
  at::Tensor table;
  comm::WorkPtr work;                ///< writes the second row of the table
  at::Tensor host;                   ///< the table in pinned memory; undefined on a CPU
  std::optional<c10::Event> copied;  ///< reached when the table is in `host`

  std::vector<int64_t> sent, received;  ///< numbers of rows to and from each rank
  std::vector<int64_t> arriving;        ///< [ranks, experts here]
  int64_t all() const {
    return std::accumulate(received.begin(), received.end(), int64_t{0});
  }
};

using TokenCountsPtr = std::shared_ptr<TokenCounts>;

/// Waits until the host knows the numbers.
void learn(TokenCounts& counts, int64_t ranks, const TokenDispatch::Wait& wait) {
  if (!counts.table.defined()) return;
  if (counts.copied) {
    wait(*counts.copied);
  } else {
    counts.work->wait();
  }
  const at::Tensor& from = counts.copied ? counts.host : counts.table;
  const int64_t experts = counts.table.size(1), here = experts / ranks;
  const auto* numbers = from.const_data_ptr<int64_t>();
  counts.arriving.assign(numbers + experts, numbers + 2 * experts);
  for (int64_t r = 0; r < ranks; ++r) {
    const auto sum_of_rank = [&](const int64_t* all) {
      return std::accumulate(all + r * here, all + (r + 1) * here, int64_t{0});
    };
    counts.sent.push_back(sum_of_rank(numbers));
    counts.received.push_back(sum_of_rank(numbers + experts));
  }
  counts.table.reset();
  counts.host.reset();
  counts.work.reset();
  counts.copied.reset();
}

/// Plans how rows that arrive by rank, and of a rank by expert, come into the order by
/// expert, and of an expert by rank. The host knows where the parts of ranks and experts
/// lie, and the device finds the place of each row.
ops::RoutedRows plan_sort(const TokenCounts& counts, int64_t ranks, at::Device device) {
  const int64_t parts = std::ssize(counts.arriving), here = parts / ranks;
  // From pinned memory the numbers are copied to a device without a wait.
  const at::Tensor numbers =
      at::empty({4 * parts + here + 1},
                at::TensorOptions(at::kLong).pinned_memory(!device.is_cpu()));
  auto* const arrival_end = numbers.mutable_data_ptr<int64_t>();
  int64_t* const to_sorted = arrival_end + parts;
  int64_t* const sorted_end = to_sorted + parts;
  int64_t* const to_arrival = sorted_end + parts;
  int64_t* const first = to_arrival + parts;
  std::inclusive_scan(counts.arriving.begin(), counts.arriving.end(), arrival_end);
  int64_t row = 0;
  for (int64_t e = 0; e < here; ++e) {
    first[e] = row;
    for (int64_t r = 0; r < ranks; ++r) {
      const int64_t from = r * here + e, to = e * ranks + r;
      row += counts.arriving[static_cast<size_t>(from)];
      sorted_end[to] = row;
      to_sorted[from] = row - arrival_end[from];
      to_arrival[to] = arrival_end[from] - row;
    }
  }
  first[here] = row;
  const at::Tensor there = numbers.to(device, /*non_blocking=*/true);
  const at::Tensor rows = at::arange(row, there.options());
  const auto moved = [&](int64_t ends, int64_t distances) {
    const at::Tensor part = at::searchsorted(there.narrow(0, ends, parts), rows,
                                             /*out_int32=*/false, /*right=*/true);
    return rows + there.narrow(0, distances, parts).index_select(0, part);
  };
  return {moved(2 * parts, 3 * parts), moved(0, parts).unsqueeze(1),
          there.narrow(0, 4 * parts, here + 1).to(at::kInt)};
}

/// Rows on their way with a weight each: [rows, width] in the dtype of the rows. The last
/// four bytes of a row have the bits of its weight.
struct Packed {
  at::Tensor all;
  int64_t features;

  Packed(int64_t rows, int64_t of, const at::TensorOptions& options)
      : all(at::empty({rows, layout::packed_row_bytes(of, options.dtype().itemsize()) /
                                 static_cast<int64_t>(options.dtype().itemsize())},
                      options)),
        features(of) {}
  Packed(at::Tensor packed, int64_t of) : all(std::move(packed)), features(of) {}
  at::Tensor rows() const { return all.narrow(1, 0, features); }
  at::Tensor weights() const { return all.view(at::kFloat).select(1, -1); }
};

/// An exchange under way, with the tensors that it reads and writes.
struct RowExchange {
  comm::WorkPtr work;
  at::Tensor sent, received;

  at::Tensor wait() {
    if (work) work->order();
    sent.reset();
    return std::exchange(received, {});
  }
};

struct TokenWay : nn::ExpertDispatch::Way {
  Communicator* ep = nullptr;
  std::shared_ptr<const TokenCounts> counts;
  int64_t features = 0;
  bool fused = true;
  ops::RoutedRows leaving;  ///< the rows of this rank's tokens
  ops::RoutedRows sorted;   ///< takes rows from the order of arrival to that of experts
  at::Tensor tie;           ///< has no elements, and leads from ArriveNode to SendNode
  RowExchange forward, backward;
};

using TokenWayPtr = std::shared_ptr<TokenWay>;

TokenWay& way_of(const nn::ExpertDispatch::WayPtr& way) {
  return static_cast<TokenWay&>(*way);
}

/// Starts to send rows to the ranks, `sent[r]` to rank r, and to receive `received[r]`
/// from rank r.
RowExchange start_exchange(Communicator& ep, const at::Tensor& rows,
                           const std::vector<int64_t>& sent,
                           const std::vector<int64_t>& received) {
  using Kind = comm::Transfer::Kind;
  RowExchange exchange{{}, rows.contiguous(), {}};
  const int64_t arriving = std::accumulate(received.begin(), received.end(), int64_t{0});
  exchange.received = at::empty({arriving, rows.size(1)}, rows.options());
  std::vector<comm::Transfer> transfers;
  at::Tensor mine, kept;
  int64_t from = 0, to = 0;
  for (int r = 0; r < ep.size(); ++r) {
    const int64_t out = sent[static_cast<size_t>(r)];
    const int64_t in = received[static_cast<size_t>(r)];
    const at::Tensor leaving = exchange.sent.narrow(0, from, out);
    const at::Tensor coming = exchange.received.narrow(0, to, in);
    if (r == ep.rank()) {
      mine = leaving;
      kept = coming;
    } else {
      if (out > 0) transfers.push_back({Kind::Send, r, tensor::buffer_of(leaving)});
      if (in > 0) transfers.push_back({Kind::Recv, r, tensor::buffer_of(coming)});
    }
    from += out;
    to += in;
  }
  if (!transfers.empty()) exchange.work = ep.send_recv(std::move(transfers));
  kept.copy_(mine);  // while the others' rows are under way
  return exchange;
}

RowExchange to_experts(const TokenWay& way, const at::Tensor& rows) {
  return start_exchange(*way.ep, rows, way.counts->sent, way.counts->received);
}

RowExchange to_tokens(const TokenWay& way, const at::Tensor& rows) {
  return start_exchange(*way.ep, rows, way.counts->received, way.counts->sent);
}

/// Packs rows with their weights and starts the exchange of the forward, when `counts`
/// are known. In the backward it waits for the exchange, and adds up the gradients of
/// each token.
struct SendNode : ops::Function<SendNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& weights, TokenWayPtr way,
                            const std::function<void()>& learn_counts) {
    const Packed packed(weights.size(0), way->features, x.options());
    ops::put_rows(x, way->leaving.token, packed.rows(), way->fused);
    packed.weights().copy_(weights);
    learn_counts();
    way->forward = to_experts(*way, packed.all);
    way->sorted = plan_sort(*way->counts, way->ep->size(), x.device());
    ops::save(ctx, std::move(way));
    return at::empty({0}, x.options());
  }
  static tensor_list backward(AutogradContext* ctx, const tensor_list& /*grads*/) {
    auto& way = *ops::saved<TokenWayPtr>(ctx);
    const Packed got(way.backward.wait(), way.features);
    return {ops::added_rows(got.rows(), way.leaving.place, way.fused),
            got.weights().contiguous(), Variable(), Variable()};
  }
};

/// Waits for the exchange of the forward, and starts that of the backward.
struct ArriveNode : ops::Function<ArriveNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& /*tie*/,
                            TokenWayPtr way) {
    at::Tensor packed = way->forward.wait();
    ops::save(ctx, std::move(way));
    return packed;
  }
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    auto& way = *ops::saved<TokenWayPtr>(ctx);
    way.backward = to_tokens(way, grads[0]);
    return {at::empty({0}, grads[0].options()), Variable()};
  }
};

/// Takes packed rows and weights [A, width] apart: [A, H] and [A], in the order of
/// experts.
struct SortNode : ops::Function<SortNode> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& all,
                             TokenWayPtr way) {
    const Packed packed(all, way->features);
    const at::Tensor& order = way->sorted.token;
    at::Tensor rows = at::empty({all.size(0), way->features}, all.options());
    ops::put_rows(packed.rows(), order, rows, way->fused);
    at::Tensor weights = packed.weights().index_select(0, order);
    ops::save(ctx, std::move(way));
    return {std::move(rows), std::move(weights)};
  }
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto& way = *ops::saved<TokenWayPtr>(ctx);
    const at::Tensor place = way.sorted.place.squeeze(1);
    const Packed packed(place.size(0), way.features, grads[0].options());
    ops::put_rows(grads[0], place, packed.rows(), way.fused);
    packed.weights().copy_(grads[1].index_select(0, place));
    return {packed.all, Variable()};
  }
};

struct BackNode : ops::Function<BackNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows,
                            TokenWayPtr way) {
    at::Tensor back = to_tokens(*way, rows).wait();
    ops::save(ctx, std::move(way));
    return back;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    return {to_experts(*ops::saved<TokenWayPtr>(ctx), grads[0]).wait(), Variable()};
  }
};

}  // namespace

c10::Stream TokenDispatch::beside(at::Device device) const {
  const c10::impl::VirtualGuardImpl guard(device.type());
  if (!beside_) {
    try {
      beside_ = guard.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
    } catch (const c10::Error&) {  // a plug-in's device need not have side streams
      return guard.getStream(device);
    }
  }
  return *beside_;
}

nn::ExpertDispatch::CountsPtr TokenDispatch::announce(const at::Tensor& chosen,
                                                      int64_t experts) const {
  const auto counts = std::make_shared<TokenCounts>();
  counts->table = at::zeros({2, experts}, chosen.options());
  const at::Tensor leaving = counts->table.select(0, 0);
  const at::Tensor one = at::ones({1}, chosen.options());
  leaving.scatter_add_(0, chosen.reshape(-1), one.expand({chosen.numel()}));
  counts->work = ep_.all_to_all(tensor::buffer_of(leaving),
                                tensor::buffer_of(counts->table.select(0, 1)));
  if (chosen.is_cpu()) return counts;
  const c10::StreamGuard guard(beside(chosen.device()));
  counts->work->order();
  counts->host =
      at::empty({2 * experts}, chosen.options().device(at::kCPU).pinned_memory(true));
  counts->host.copy_(counts->table.view(-1), /*non_blocking=*/true);
  counts->copied.emplace(chosen.device().type());
  counts->copied->record(guard.current_stream());
  return counts;
}

nn::ExpertDispatch::WayPtr TokenDispatch::send(const CountsPtr& counts,
                                               const at::Tensor& x,
                                               const at::Tensor& weights,
                                               const ops::RoutedRows& rows,
                                               bool fused) const {
  const auto way = std::make_shared<TokenWay>();
  const auto known = std::static_pointer_cast<TokenCounts>(counts);
  way->ep = &ep_;
  way->counts = known;
  way->features = x.size(1);
  way->fused = fused;
  way->leaving = rows;
  way->tie = SendNode::apply(
      x, weights, way, std::function<void()>([&] { learn(*known, ep_.size(), wait_); }));
  return way;
}

nn::ExpertDispatch::Arrived TokenDispatch::arrive(const WayPtr& way) const {
  TokenWay& here = way_of(way);
  const auto shared = std::static_pointer_cast<TokenWay>(way);
  const tensor_list got =
      SortNode::apply(ArriveNode::apply(std::exchange(here.tie, {}), shared), shared);
  return {got[0], got[1], here.sorted.offsets};
}

at::Tensor TokenDispatch::back(const WayPtr& way, at::Tensor rows) const {
  // Each sum of sum_rows() has only one row here, so that the rows are only put into the
  // order of arrival. The source rows are freed before the exchange.
  rows = ops::sum_rows(rows, way_of(way).sorted, true);
  return BackNode::apply(std::move(rows), std::static_pointer_cast<TokenWay>(way));
}

}  // namespace longhaul::parallel
