#include "apps/links/group_exchanges.h"

#include <ATen/ops/zeros.h>

#include <memory>
#include <utility>

#include "longhaul/device/device.h"
#include "longhaul/families/adapter.h"
#include "longhaul/format/dtype.h"
#include "longhaul/layout/group_use.h"
#include "longhaul/layout/rank_costs.h"
#include "longhaul/session/layout.h"

namespace longhaul::apps {
namespace {

constexpr int kExchangeRounds = 3;

}  // namespace

std::vector<GroupExchange> measure_exchanges(const RunConfig& config, at::Device device,
                                             comm::Communicator& world,
                                             comm::Communicator& node) {
  const ModelDescription model = load_run_model(config).description;
  const layout::LayoutDescription layout = layout::describe_layout(
      config, model, world.size(), session::placement_of(world, node));
  const layout::LayoutCosts costs(config, model, layout);
  const std::vector<layout::TrafficLine> lines = measure::exchanges_of(layout, costs);
  if (lines.empty()) return {};
  const layout::Groups kinds = layout.rank_groups();
  const auto bytes = at::TensorOptions(device).dtype(at::kByte);
  const at::Tensor in = at::zeros({measure::kExchangeBytes.back()}, bytes);
  const at::Tensor out = at::zeros({measure::kExchangeBytes.back()}, bytes);
  const bool fp32 = config.precision.compute == ComputeType::Fp32;
  const bool sums_fp32 = config.precision.reduce == StateType::Fp32;
  std::vector<std::unique_ptr<comm::Communicator>> groups;
  device::Groups on_device;  // end before `groups`
  std::vector<comm::Communicator*> used;
  for (const layout::TrafficLine& line : lines) {
    groups.push_back(measure::group_of(world, kinds, line.group));
    used.push_back(groups.back().get());
    if (device.is_cpu() || used.back()->size() == 1) continue;
    on_device.push_back(device::group_for(
        device, *used.back(), layout::use_of(line.group, config.parallel.context)));
    used.back() = on_device.back().get();
  }
  device::open_groups(on_device);
  std::vector<measure::Probe> probes;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool wide = lines[i].kind == layout::TrafficKind::Gradients ? sums_fp32 : fp32;
    auto more = measure::exchange_probes(lines[i], *used[i],
                                         wide ? format::DType::F32 : format::DType::BF16,
                                         in.data_ptr(), out.data_ptr());
    for (measure::Probe& probe : more) probes.push_back(std::move(probe));
  }
  const auto rates = measure::measure(probes, {.count = kExchangeRounds});
  std::vector<GroupExchange> found;
  for (size_t i = 0; i < lines.size(); ++i) {
    GroupExchange& one = found.emplace_back();
    one.line = lines[i];
    one.spread = plan::spread_of(kinds, lines[i].group, 0, node.size());
    for (size_t size = 0; size < measure::kExchangeBytes.size(); ++size) {
      const size_t at = i * measure::kExchangeBytes.size() + size;
      one.points.push_back({probes[at].work, rates[at].median});
    }
  }
  return found;
}

}  // namespace longhaul::apps
