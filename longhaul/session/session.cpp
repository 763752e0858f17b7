#include "longhaul/session/session.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/comm/hosts.h"
#include "longhaul/device/device.h"
#include "longhaul/device/run_ahead.h"
#include "longhaul/layout/group_use.h"
#include "longhaul/layout/rank_costs.h"
#include "longhaul/ops/experts/grouped_linear.h"
#include "longhaul/session/device_fit.h"
#include "longhaul/session/offset_waits.h"
#include "longhaul/session/pairs.h"
#include "longhaul/session/router_loads.h"

namespace longhaul::session {
namespace {

/// Logs which tensors split unevenly over tp.
void tell_uneven_splits(const Session& session, system::Logger& log) {
  std::vector<layout::SplitTensor> wholes;
  for (const ParameterDescription& p : session.model().description.parameters()) {
    wholes.push_back({p.whole(), p.split});
  }
  for (const std::string& note :
       layout::uneven_splits(session.layout().description().tensor, wholes)) {
    log.info(note);
  }
}

/// Returns the bytes that NCCL is still to take of this rank's device. Logs what it has,
/// and what is reserved.
int64_t reserve_for_nccl(const Session& session, system::Logger& log) {
  if (session.device().type() != at::kCUDA) return 0;
  const int64_t reckoned = layout::reckoned_nccl_bytes(
      session.layout().description(), session.config(), session.world().rank());
  if (reckoned == 0) return 0;
  const std::optional<uint64_t> has = session.layout().bytes_of_groups();
  const int64_t left =
      std::max<int64_t>(0, reckoned - static_cast<int64_t>(has.value_or(0)));
  log.info(
      "NCCL's buffers: {} are reserved of the device's memory (reckoned, not "
      "measured); {}",
      human_bytes(left),
      has ? fmt::format("NCCL has {} of it already", human_bytes(*has))
          : "this NCCL does not tell what it has (since 2.29)");
  return left;
}

/// Checks before anything large is made whether the rank's tensors fit its device.
void check_device_fit(const Session& session, const ParameterClasses& classes,
                      system::Logger& log) {
  if (session.device().is_cpu()) return;
  // The settings may name the device "auto", for which the costs would be those of a CPU.
  // So the name of the rank's device is given too.
  const layout::LayoutCosts costs(
      session.config(), session.model().description, session.layout().description(),
      [&](const std::string& name) { return classes.at(name).frozen; },
      device::name(session.device()));
  const std::optional<device::Memory> memory = device::memory(session.device());
  if (!memory) {
    log.warning(
        "{} does not tell how much memory it has (getMemoryInfo): whether the "
        "run fits is not known before it runs",
        device::name(session.device()));
    return;
  }
  const std::string warning =
      check_fit(costs.of(session.world().rank()), reserve_for_nccl(session, log),
                memory->free, memory->total);
  if (!warning.empty()) log.warning(warning);
}

/// Warns if the host has to wait for the device in the products of experts, and says why.
void tell_offset_waits(const Session& session, const ParameterClasses& classes,
                       system::Logger& log) {
  const ModelDescription& model = session.model().description;
  if (session.device().is_cpu() || !families::has_experts(session.model().network)) {
    return;
  }
  const std::string why = ops::describe_offset_waits(
      tensor::to_scalar_type(session.machine().policy.compute), session.device(),
      device::name(session.device()), session.config().run.fused,
      expert_sizes(model, session.layout().description().tensor));
  if (!why.empty()) {
    log.warning(
        "products of experts run one expert after another, and the "
        "host waits for the device in each layer: {}",
        why);
    return;
  }
  const std::string mixed = describe_partly_frozen(
      model, session.layout().description().ep,
      [&](const std::string& name) { return classes.at(name).frozen; });
  if (!mixed.empty()) log.warning(mixed);
}

/// Warns if the rows of experts go from machine to machine. Collective.
void tell_far_experts(const Session& session, system::Logger& log) {
  comm::Communicator* const ep = session.layout().tensor_group(layout::GroupKind::Ep);
  if (ep == nullptr || !session.world().any(comm::count_machines(*ep) > 1)) return;
  const layout::LayoutDescription& layout = session.layout().description();
  log.warning(
      "parallel.ep = {} with parallel.tp = {} spans machines: rows of experts cross the "
      "network in each layer; with ep x tp at most a machine's ranks they stay on it",
      layout.ep, layout.shape.tp);
}

}  // namespace

Session::Session(RunConfig config, Machine machine, ModelConfig model, Layout layout,
                 const ParameterClasses& classes, system::Logger& log)
    : config_(std::move(config)),
      machine_(std::move(machine)),
      model_(std::move(model)),
      layout_(std::move(layout)) {
  tell_uneven_splits(*this, log);
  check_device_fit(*this, classes, log);
  tell_offset_waits(*this, classes, log);
  tell_far_experts(*this, log);
  const auto placed = build_chunks(classes);
  flat_ = std::make_unique<tensor::FlatBuffers>(
      placed, machine_.policy, machine_.device,
      layout_.description().sharding(machine_.world->rank()));
  replicas_ = std::make_unique<parallel::DataParallel>(*flat_, layout_.groups());
  for (const Chunk& chunk : chunks_) {
    chunk.model->prepare(config_.data.seq_len, machine_.device);
  }
}

/// Builds this rank's chunks of the model, cut to its tp index. Returns their parameters
/// in forward order, as the layout places them.
std::vector<tensor::FlatParameter> Session::build_chunks(
    const ParameterClasses& classes) {
  const layout::LayoutDescription& layout = layout_.description();
  const int rank = machine_.world->rank();
  std::vector<tensor::ParameterPtr> parameters;
  for (const layout::ChunkUnits& units : layout.chunk_units(model_.description, rank)) {
    chunks_.push_back({models::build(model_, units.spec), units});
    for (const tensor::ParameterPtr& p : chunks_.back().model->parameters()) {
      parameters.push_back(p);
    }
  }
  const std::vector<layout::PlacedParameter> places =
      layout.parameters(model_.description, rank,
                        [&](const std::string& name) { return classes.at(name).frozen; });
  LH_ASSERT(places.size() == parameters.size(), "{} parameters, {} described",
            parameters.size(), places.size());
  std::vector<tensor::FlatParameter> placed;
  for (size_t i = 0; i < places.size(); ++i) {
    const layout::PlacedParameter& place = places[i];
    LH_ASSERT(place.slice.name == parameters[i]->name(),
              "{} stands where {} is described", parameters[i]->name(), place.slice.name);
    parameters[i]->set_slice(place.slice);
    placed.push_back({parameters[i], classes.at(place.slice.name), place.unit,
                      place.sum_group, place.counted, place.expert, place.joint});
  }
  return placed;
}

Json layout_of(const Session& session) {
  const layout::MeshShape& shape = session.mesh().shape();
  Json layout = {{"world", session.world().size()},
                 {"pp", shape.pp},
                 {"dp", shape.dp},
                 {"cp", shape.cp},
                 {"tp", shape.tp},
                 {"zero", session.config().parallel.zero}};
  if (session.layout().description().ep > 1)
    layout["ep"] = session.layout().description().ep;
  return layout;
}

int64_t dividing_length(const Session& session, int64_t wanted) {
  const int64_t whole = session.config().data.seq_len;
  const layout::MeshShape& shape = session.mesh().shape();
  const int64_t unit = shape.tp * shape.cp == 1 ? 1 : 2 * int64_t{shape.tp} * shape.cp;
  return std::min(whole, (wanted + unit - 1) / unit * unit);
}

StageOptions stage_options(const Session& session, Capture* capture, Profile* profile,
                           std::function<void()> after_forward) {
  const RunConfig& config = session.config();
  StageOptions options;
  options.after_forward = std::move(after_forward);
  options.device = session.device();
  options.context.fused = config.run.fused;
  const bool full = config.memory.recompute == RecomputeKind::Full;
  const int64_t layers = session.model().description.num_blocks();
  options.recompute_end = full ? config.memory.recompute_layers.value_or(layers) : 0;
  options.context.selective_recompute =
      config.memory.recompute == RecomputeKind::Selective;
  options.masks_documents = config.data.document_mask;
  options.offload = config.memory.offload_activations;
  options.z_loss = config.optimizer.z_loss;
  // The reference of a pair was made without dropout, and the model is compared with it.
  if (session.model().description.drops && !config.preference.loss) {
    options.context.dropout_key = static_cast<uint64_t>(config.run.seed);
  }
  const auto& buckets = session.flat().buckets();
  options.units = session.layout().description().rank_units(
      session.model().description, session.world().rank(),
      {buckets.begin(), buckets.end()});
  for (const PassedTensor& tensor : session.model().description.passed) {
    options.passed.push_back(tensor.width);
  }
  options.token_parts =
      session.layout().description().tensor.sequence ? session.mesh().shape().tp : 1;
  session.layout().prepare(options.context);
  prepare_router(session, options.context.router);
  prepare_pairs(session, options.context.pairs);
  options.capture = capture;
  options.profile = profile;
  if (session.world().size() > 1) {
    options.drive = [world = session.machine().world] { world->progress(); };
  }
  if (session.world().size() > 1 && !session.device().is_cpu()) {
    options.begin_unit = [ahead = std::make_shared<device::RunAhead>(
                              session.device(), session.layout().watch())] {
      ahead->begin_unit();
    };
  }
  return options;
}

void run_plan(const Session& session, const layout::PipelinePlan& plan,
              StageRunner& runner, parallel::Trace* trace) {
  const device::BackwardHere backward_here;
  try {
    runner.begin_plan(plan, session.mesh().index().pp);
    parallel::execute(
        plan, runner, session.layout().boundaries(),
        {tensor::to_scalar_type(session.machine().policy.compute), session.device()},
        trace);
    runner.end_plan();
  } catch (...) {
    runner.clear();
    throw;
  }
}

void run_forward(const Session& session, StageRunner& runner,
                 std::vector<data::TokenBatch>& batches) {
  const at::NoGradGuard no_grad;
  runner.begin_step(batches,
                    std::vector<double>(session.model().description.losses.size(), 1.0));
  run_plan(session,
           layout::inference_plan(session.mesh().shape().pp,
                                  session.layout().description().chunks,
                                  static_cast<int64_t>(batches.size())),
           runner);
  refuse_fallbacks(session);
}

}  // namespace longhaul::session
