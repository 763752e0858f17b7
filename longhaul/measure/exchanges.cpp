#include "longhaul/measure/exchanges.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul::measure {
namespace {

using layout::TrafficKind;
using layout::TrafficLine;
using layout::Verb;

/// Runs of a probe in a round, by size.
constexpr std::array<int, kExchangeBytes.size()> kExchangeRuns = {16, 4, 2};

/// The buffers of an operation. Each divides into equal parts for the ranks.
struct ExchangeBuffers {
  comm::Buffer in, out;

  static comm::Buffer part(const comm::Buffer& whole, int64_t ranks, int64_t rank) {
    const int64_t count = whole.count / ranks;
    const auto bytes = whole.bytes() / static_cast<size_t>(ranks);
    return {static_cast<char*>(whole.data) + static_cast<size_t>(rank) * bytes, count,
            whole.dtype};
  }
};

/// Returns the messages of a send_recv: to each rank its part, or all to the next rank.
std::vector<comm::Transfer> messages_of(const TrafficLine& line,
                                        const comm::Communicator& group,
                                        const ExchangeBuffers& buffers) {
  using Kind = comm::Transfer::Kind;
  const int ranks = group.size();
  if (line.kind != TrafficKind::Experts) {
    return {{Kind::Send, (group.rank() + 1) % ranks, buffers.in},
            {Kind::Recv, (group.rank() + ranks - 1) % ranks, buffers.out}};
  }
  std::vector<comm::Transfer> transfers;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == group.rank()) continue;
    const auto part = [&](const comm::Buffer& whole) {
      return ExchangeBuffers::part(whole, ranks, peer);
    };
    transfers.push_back({Kind::Send, peer, part(buffers.in)});
    transfers.push_back({Kind::Recv, peer, part(buffers.out)});
  }
  return transfers;
}

void exchange(const TrafficLine& line, comm::Communicator& group,
              const ExchangeBuffers& buffers) {
  const auto first = [&](const comm::Buffer& whole) {
    return ExchangeBuffers::part(whole, group.size(), 0);
  };
  const auto start = [&] {
    switch (line.verb) {
      case Verb::SendRecv:
        return group.send_recv(messages_of(line, group, buffers));
      case Verb::AllReduce:
        return group.all_reduce(buffers.out, comm::ReduceOp::Sum);
      case Verb::AllGather:
        return group.all_gather(first(buffers.in), buffers.out);
      case Verb::ReduceScatter:
        return group.reduce_scatter(buffers.in, first(buffers.out), comm::ReduceOp::Sum);
      case Verb::AllToAll:
        return group.all_to_all(buffers.in, buffers.out);
      case Verb::Broadcast:
        return group.broadcast(buffers.out, 0);
      case Verb::Barrier:
        return group.barrier();
    }
    LH_ASSERT(false, "a verb that is not known: {}", static_cast<int>(line.verb));
  };
  start()->wait();
}

}  // namespace

std::vector<TrafficLine> exchanges_of(const layout::LayoutDescription& layout,
                                      const layout::LayoutCosts& costs) {
  std::vector<TrafficLine> found;
  for (int pp = 0; pp < layout.shape.pp; ++pp) {
    for (int tp = 0; tp < layout.shape.tp; ++tp) {
      const int rank = layout::rank_at(layout.shape, {.pp = pp, .tp = tp});
      for (const TrafficLine& line : costs.of(rank).traffic.lines()) {
        const bool there = std::ranges::any_of(found, [&](const TrafficLine& other) {
          return other.group == line.group &&
                 layout::operation_name(other) == layout::operation_name(line);
        });
        if (!there) found.push_back({line.kind, line.group, line.verb});
      }
    }
  }
  return found;
}

std::unique_ptr<comm::Communicator> group_of(comm::Communicator& world,
                                             const layout::Groups& groups,
                                             layout::GroupKind kind) {
  const std::vector<int> members = groups.members(kind, world.rank());
  const auto key = std::ranges::find(members, world.rank()) - members.begin();
  return world.split(members.front(), static_cast<int>(key), layout::group_name(kind));
}

std::vector<Probe> exchange_probes(const TrafficLine& line, comm::Communicator& group,
                                   format::DType dtype, void* in, void* out) {
  const int64_t ranks = group.size();
  std::vector<Probe> probes;
  for (size_t i = 0; i < kExchangeBytes.size(); ++i) {
    const auto elements =
        kExchangeBytes[i] / static_cast<int64_t>(format::dtype_size(dtype));
    const int64_t count = std::max<int64_t>(1, elements / ranks) * ranks;
    const ExchangeBuffers buffers = {{in, count, dtype}, {out, count, dtype}};
    Probe& probe = probes.emplace_back();
    probe.name =
        fmt::format("{} {} of {} bytes over {} ranks", layout::group_name(line.group),
                    layout::operation_name(line), kExchangeBytes[i], ranks);
    probe.unit = "B";
    probe.runs = kExchangeRuns[i];
    probe.run = [line, &group, buffers] {
      if (group.size() > 1) exchange(line, group, buffers);
    };
    const int64_t before = group.counts().total().bytes;
    probe.run();
    probe.work = static_cast<double>(group.counts().total().bytes - before);
  }
  return probes;
}

LinkProfile fit_link(std::span<const SentBytes> points) {
  LH_CHECK(!points.empty(), "bench", "a fit of no points");
  // The least squares of (latency + bytes * slope) / seconds - 1.
  double w = 0.0, wb = 0.0, wbb = 0.0, ws = 0.0, wbs = 0.0;
  for (const SentBytes& point : points) {
    const double seconds = point.bytes / point.bytes_per_s;
    const double weight = 1.0 / (seconds * seconds);
    w += weight;
    wb += weight * point.bytes;
    wbb += weight * point.bytes * point.bytes;
    ws += weight * seconds;
    wbs += weight * point.bytes * seconds;
  }
  const double slope = w * wbs - wb * ws;
  const double latency = wbb * ws - wb * wbs;
  const double both = w * wbb - wb * wb;
  if (slope <= 0.0 || latency < 0.0) return {points.back().bytes_per_s, 0.0};
  return {both / slope, latency / both};
}

}  // namespace longhaul::measure
