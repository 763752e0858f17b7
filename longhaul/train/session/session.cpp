#include "longhaul/train/session/session.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <numeric>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/comm/hosts.h"
#include "longhaul/config/hardware_profile.h"
#include "longhaul/device/device.h"
#include "longhaul/device/plugin.h"
#include "longhaul/ops/attention/library_attention.h"
#include "longhaul/ops/experts/grouped_linear.h"
#include "longhaul/ops/fused/device_precision.h"
#include "longhaul/ops/kernels/cpu.h"
#include "longhaul/ops/linear/products.h"
#include "longhaul/optim/ratio_groups.h"
#include "longhaul/system/cpus.h"
#include "longhaul/system/run_on_threads.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/train/session/device_fit.h"
#include "longhaul/train/session/fingerprint.h"
#include "longhaul/train/session/offset_waits.h"
#include "longhaul/train/session/open_data.h"
#include "longhaul/train/session/router_loads.h"
#include "longhaul/train/session/staged_inputs.h"
#include "longhaul/train/session/threads.h"

namespace longhaul::train {
namespace {

/// How often a rank that waits for its batch says that it lives, and looks for signals.
constexpr auto kDataLook = std::chrono::milliseconds(250);
/// Seconds of waiting for a batch from which on the log tells of it.
constexpr double kLongDataWait = 5.0;

format::DType state_dtype(StateType type) {
  return type == StateType::Fp32 ? format::DType::F32 : format::DType::BF16;
}

tensor::DTypePolicy make_policy(const PrecisionSection& p) {
  return {p.compute == ComputeType::Fp32 ? format::DType::F32 : format::DType::BF16,
          p.master == MasterType::Fp32 ? format::DType::F32 : format::DType::BF16,
          state_dtype(p.moments), state_dtype(p.gradients), state_dtype(p.reduce)};
}

/// Makes results repeat bitwise where the settings ask for it. The CPU kernels always do;
/// on other devices ATen is told to.
void set_determinism(const RunConfig& config, at::Device device, system::Logger& log) {
  const bool wanted = config.run.deterministic.value_or(device.is_cpu());
  if (device.is_cpu()) {
    if (!wanted) {
      log.warning(
          "run.deterministic = false has no effect: a CPU's results repeat bitwise "
          "anyway");
    }
    return;
  }
  at::globalContext().setDeterministicAlgorithms(wanted, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  ops::set_device_precision();
}

/// Returns the fingerprint of all ranks. Collective.
Json fingerprint_of(const Session& session) {
  const at::ScalarType compute = tensor::to_scalar_type(session.policy.compute);
  const Json place = {
      {"layout", session.layout.describe()},
      {"device", device::name(session.device)},
      {"collectives", device::describe_sums(session.device, *session.world)},
      {"products", ops::describe_products(compute, session.device)},
      {"attention", ops::library::describe_attention(compute, session.device)}};
  std::vector<Json> of_ranks;
  for (const std::string& text :
       session.world->gather_strings(json_text(numerics_fingerprint(place)))) {
    of_ranks.push_back(parse_json(text, "a rank's fingerprint"));
  }
  return merge_fingerprints(of_ranks);
}

/// Returns the class of every parameter of the whole model, by name.
std::map<std::string, tensor::ParameterClass> parameter_classes(Session& session,
                                                                system::Logger& log) {
  const ModelDescription& model = session.model_config.description;
  session.groups = optim::assign_param_groups(model, session.config.optimizer);
  for (const std::string& warning : session.groups.warnings) log.warning(warning);
  if (session.config.optimizer.kind == OptimizerKind::Lamb) {
    optim::check_ratio_groups(model, session.groups);
  }
  return session.groups.settings;
}

/// Builds this rank's chunks of the model, cut to its tp index. Returns their parameters
/// in forward order, as the layout places them.
std::vector<tensor::FlatParameter> build_chunks(
    Session& session, const std::map<std::string, tensor::ParameterClass>& classes) {
  const Layout& layout = session.layout;
  std::vector<tensor::ParameterPtr> parameters;
  for (const layout::ChunkUnits& units :
       layout.chunk_units(session.model_config.description, session.world->rank())) {
    session.chunks.push_back({models::build(session.model_config, units.spec), units});
    for (const tensor::ParameterPtr& p : session.chunks.back().model->parameters()) {
      parameters.push_back(p);
    }
  }
  const std::vector<layout::PlacedParameter> places =
      layout.parameters(session.model_config.description, session.world->rank(),
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

/// Checks before anything large is made whether the rank's tensors fit its device.
void check_device_fit(const Session& session,
                      const std::map<std::string, tensor::ParameterClass>& classes,
                      system::Logger& log) {
  if (session.device.is_cpu()) return;
  const layout::LayoutCosts costs(
      session.config, session.model_config.description, session.layout,
      [&](const std::string& name) { return classes.at(name).frozen; });
  const std::optional<device::Memory> memory = device::memory(session.device);
  if (!memory) {
    log.warning(fmt::format(
        "{} does not tell how much memory it has (getMemoryInfo): whether the "
        "run fits is not known before it runs",
        device::name(session.device)));
    return;
  }
  const std::string warning =
      check_fit(costs.of(session.world->rank()), memory->free, memory->total);
  if (!warning.empty()) log.warning(warning);
}

/// Logs where the host waits for the device in products of experts.
void tell_offset_waits(const Session& session,
                       const std::map<std::string, tensor::ParameterClass>& classes,
                       system::Logger& log) {
  const ModelDescription& model = session.model_config.description;
  if (session.device.is_cpu() || !families::has_experts(session.model_config.network)) {
    return;
  }
  const std::string why = ops::describe_offset_waits(
      tensor::to_scalar_type(session.policy.compute), session.device,
      device::name(session.device), session.config.run.fused,
      expert_sizes(model, session.layout.tensor));
  if (!why.empty()) {
    log.warning(
        fmt::format("products of experts run one expert after another, and the "
                    "host waits for the device in each layer: {}",
                    why));
    return;
  }
  const std::string mixed = describe_partly_frozen(
      model, session.layout.ep,
      [&](const std::string& name) { return classes.at(name).frozen; });
  if (!mixed.empty()) log.warning(mixed);
}

/// Builds the model's parts on this rank, and their memory.
void build_parts(Session& session,
                 const std::map<std::string, tensor::ParameterClass>& classes,
                 system::Logger& log) {
  std::vector<format::SplitTensor> wholes;
  for (const ParameterDescription& p : session.model_config.description.parameters()) {
    wholes.push_back({p.whole(), p.split});
  }
  for (const std::string& note : format::uneven_splits(session.layout.tensor, wholes)) {
    log.info(note);
  }
  check_device_fit(session, classes, log);
  tell_offset_waits(session, classes, log);
  const auto placed = build_chunks(session, classes);
  session.flat = std::make_unique<tensor::FlatBuffers>(
      placed, session.policy, session.device,
      session.layout.sharding(session.world->rank()));
  session.replicas =
      std::make_unique<parallel::DataParallel>(*session.flat, session.layout.groups);
  for (const Chunk& chunk : session.chunks) {
    chunk.model->prepare(session.config.data.seq_len, session.device);
  }
}

/// Takes the peak rate of run.hardware. Throws ConfigError where the profile is of
/// another machine, or lacks the peak.
void take_hardware_profile(Session& session) {
  const fs::path& file = session.config.run.hardware;
  if (file.empty()) return;
  const HardwareProfile profile = parse_hardware_profile(read_text(file), file.string());
  check_machine(profile, file.string(), device::name(session.device), kernels::cpu_name(),
                at::get_num_threads());
  session.hardware_peak = session.policy.compute == format::DType::BF16
                              ? profile.peak_bf16
                              : profile.peak_fp32;
  if (session.hardware_peak > 0.0) return;
  throw ConfigError(
      "hardware",
      fmt::format("{} has no peak.{}, which precision.compute needs; measure the machine "
                  "again with longhaul bench --out, or leave run.hardware out",
                  file.string(),
                  session.policy.compute == format::DType::BF16 ? "bf16" : "fp32"));
}

/// Does what comes before the layout's groups and the data are made, and returns the
/// layout that the ranks are to have. Collective.
layout::LayoutDescription settle(Session& session, const RunConfig& config,
                                 std::shared_ptr<comm::Communicator> world,
                                 system::Logger& log) {
  session.config = config;
  session.world = std::move(world);
  session.node = comm::split_by_host(*session.world, "node");
  session.batch = derive_batch(config, session.world->size());
  session.policy = make_policy(config.precision);
  if (!config.run.device_plugin.empty()) device::load_plugin(config.run.device_plugin);
  session.device = device::choose(config.run.device, *session.node);
  device::check(session.device);
  if (config.memory.offload_activations) {
    device::check_side_streams(session.device, "memory.offload_activations");
  }
  if (!config.profile.steps.empty() || config.profile.every > 0) {
    device::check_timing(session.device, "[profile]");
  }
  if (config.run.device == "auto" && session.device.is_cpu()) {
    const std::string unused = device::unused_gpus();
    if (!unused.empty()) {
      log.warning(fmt::format("the run uses the CPU, although this machine has GPUs: {}",
                              unused));
    }
  }
  set_determinism(config, session.device, log);
  if (config.memory.offload_activations && session.device.is_cpu()) {
    log.warning("memory.offload_activations has no effect: a CPU has no other memory");
  }
  session.threads = set_threads(config.run.threads, *session.node);
  take_hardware_profile(session);
  session.fetches_shards = stage_inputs(config, *session.world, session.objects, log);
  session.model_config = load_model_config(session.objects.readable(config.model.config),
                                           config.model.override_);
  for (const std::string& field : session.model_config.ignored_fields) {
    log.warning(
        fmt::format("config.json: the field '{}' is not known and has no effect", field));
  }
  check_against_model(config, session.model_config);
  for (const std::string& warning :
       settings_without_effect(config, session.model_config)) {
    log.warning(warning);
  }
  session.parameter_names = session.model_config.description.names();
  std::ranges::sort(session.parameter_names);
  // No other setting needs the machines.
  const bool of_nodes = config.parallel.shard_group.kind == ShardGroup::Kind::Node;
  const layout::Placement placement =
      of_nodes ? placement_of(*session.world, *session.node) : layout::Placement();
  return layout::describe_layout(config, session.model_config.description,
                                 session.world->size(), placement);
}

}  // namespace

std::string set_threads(int64_t wanted, comm::Communicator& node) {
  const std::string mine = system::CpuAllowance::of_this_process().to_text();
  std::vector<system::CpuAllowance> ranks;
  for (const std::string& text : node.gather_strings(mine)) {
    ranks.push_back(system::CpuAllowance::from_text(text));
  }
  const ThreadChoice choice =
      choose_threads(wanted, std::getenv("OMP_NUM_THREADS"),
                     system::share_of_cpus(ranks, static_cast<size_t>(node.rank())));
  // OpenMP would end the process where the system refuses a thread; this throws instead.
  system::run_on_threads(choice.threads, [](int) {});
  at::set_num_threads(choice.threads);
  if (choice.threads == 1) return choice.line;
  return choice.line + "; " +
         describe_waiting(std::getenv("OMP_WAIT_POLICY"), std::getenv("GOMP_SPINCOUNT"));
}

Session build_session(const RunConfig& config, std::shared_ptr<comm::Communicator> world,
                      system::Logger& log, data::ShardReader* shards,
                      const objects::Access& objects) {
  Session session;
  session.objects = objects;
  layout::LayoutDescription layout = settle(session, config, std::move(world), log);
  open_data(session, model_tokenizer(session).get(), shards, log);
  session.layout = make_layout(std::move(layout), config, session.device, session.world);
  session.fingerprint = fingerprint_of(session);
  build_parts(session, parameter_classes(session, log), log);
  session.optimizer = std::make_unique<optim::Optimizer>(
      *session.flat, config.optimizer,
      optim::OptimizerInputs{optim::stored_tensor_names(session.model_config.description),
                             static_cast<uint64_t>(config.run.seed),
                             session.groups.frozen()});
  return session;
}

Session build_inference_session(const RunConfig& config,
                                std::shared_ptr<comm::Communicator> world,
                                system::Logger& log) {
  Session session;
  layout::LayoutDescription layout = settle(session, config, std::move(world), log);
  session.layout = make_layout(std::move(layout), config, session.device, session.world);
  std::map<std::string, tensor::ParameterClass> classes;
  for (const std::string& name : session.parameter_names) {
    classes[name] = {.frozen = true};
  }
  build_parts(session, classes, log);
  return session;
}

void run_plan(const Session& session, const layout::PipelinePlan& plan,
              StageRunner& runner, parallel::Trace* trace) {
  const device::BackwardHere backward_here;
  try {
    runner.begin_plan(plan, session.mesh().index().pp);
    parallel::execute(plan, runner, *session.layout.boundaries,
                      {tensor::to_scalar_type(session.policy.compute), session.device},
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
  runner.begin_step(batches, std::vector<double>(session.num_losses(), 1.0));
  run_plan(session,
           layout::inference_plan(session.mesh().shape().pp, session.layout.chunks,
                                  static_cast<int64_t>(batches.size())),
           runner);
}

std::unique_ptr<tokenizer::Tokenizer> model_tokenizer(const Session& session) {
  const RunConfig& config = session.config;
  for (const fs::path& path : {config.init.weights, config.model.config}) {
    if (path.empty()) continue;
    fs::path dir = session.objects.readable(path);
    if (!config.init.weights.empty() && path == config.init.weights) {
      dir = checkpoint::model_files_dir(checkpoint::resolve_model_source(dir));
    }
    if (fs::is_regular_file(dir)) dir = dir.parent_path();
    if (tokenizer::find_tokenizer_file(dir)) return tokenizer::Tokenizer::load(dir);
  }
  return {};
}

int64_t dividing_length(const Session& session, int64_t wanted) {
  const int64_t whole = session.config.data.seq_len;
  const layout::MeshShape& shape = session.mesh().shape();
  const int64_t unit = shape.tp * shape.cp == 1 ? 1 : 2 * int64_t{shape.tp} * shape.cp;
  return std::min(whole, (wanted + unit - 1) / unit * unit);
}

Json layout_of(const Session& session) {
  const layout::MeshShape& shape = session.mesh().shape();
  Json layout = {{"world", session.world->size()},
                 {"pp", shape.pp},
                 {"dp", shape.dp},
                 {"cp", shape.cp},
                 {"tp", shape.tp},
                 {"zero", session.config.parallel.zero}};
  if (session.layout.ep > 1) layout["ep"] = session.layout.ep;
  return layout;
}

data::LoaderOptions loader_options(const Session& session, bool prefetch,
                                   int64_t first_step, int64_t last_step) {
  const RunConfig& config = session.config;
  const comm::Communicator& dp = session.mesh().dp();
  data::LoaderOptions options;
  options.seed = static_cast<uint64_t>(config.run.seed);
  options.shuffle = config.data.shuffle;
  options.global_size = config.batch.global_size;
  options.micro_size = config.batch.micro_size;
  options.data_rank = dp.rank();
  options.data_size = dp.size();
  options.prefetch = prefetch;
  options.first_step = first_step;
  options.last_step = last_step;
  for (const WeightsFrom& change : config.data.changes) {
    options.changes.push_back({change.step, change.weights});
  }
  return options;
}

data::StepBatch* next_batch(const Session& session, data::Loader& loader, int64_t step,
                            system::Logger& log, const std::function<bool()>& must_end,
                            const std::function<void()>& restart) {
  const system::Stopwatch watch;
  const auto waits = [&] {
    const bool mine = !loader.ready(kDataLook);
    return session.fetches_shards ? session.world->any(mine) : mine;
  };
  const auto has_read = [&] {
    while (waits()) {
      if (run::RankRecord* record = session.world->ledger().record()) record->moved();
      if (session.fetches_shards && must_end()) return false;
    }
    return true;
  };
  if (restart) {
    if (!has_read()) return nullptr;
    restart();
  }
  if (!has_read()) return nullptr;
  data::StepBatch& batch = loader.next();
  if (watch.seconds() >= kLongDataWait) {
    log.info(fmt::format("step {} waited {:.1f} s for its data", step, watch.seconds()));
  }
  return &batch;
}

ShardWaitsEnd::~ShardWaitsEnd() {
  if (session_.fetches_shards) session_.objects.store()->stop();
}

std::string title_of(const Session& session) {
  const layout::MeshIndex& at = session.mesh().index();
  std::string title =
      fmt::format("longhaul rank {} pp{} dp{}", session.world->rank(), at.pp, at.dp);
  if (session.mesh().shape().cp > 1) title += fmt::format(" cp{}", at.cp);
  return title + fmt::format(" tp{} step ", at.tp);
}

int64_t first_column(const Session& session, int64_t columns) {
  comm::Communicator& tp = session.mesh().tp();
  const std::vector<int64_t> widths = gather_numbers(tp, {columns});
  const auto mine = widths.begin() + tp.rank();
  const int64_t before = std::accumulate(widths.begin(), mine, int64_t{0});
  const int64_t all = std::accumulate(mine, widths.end(), before);
  LH_CHECK(all == session.model_config.vocab_size, "model",
           "the ranks of a tp group have {} words of {}", all,
           session.model_config.vocab_size);
  return before;
}

StageOptions stage_options(const Session& session, Capture* capture, Profile* profile,
                           std::function<void()> after_forward) {
  const RunConfig& config = session.config;
  StageOptions options;
  options.after_forward = std::move(after_forward);
  options.device = session.device;
  options.context.fused = config.run.fused;
  const bool full = config.memory.recompute == RecomputeKind::Full;
  const int64_t layers = session.model_config.description.num_blocks();
  options.recompute_end = full ? config.memory.recompute_layers.value_or(layers) : 0;
  options.context.selective_recompute =
      config.memory.recompute == RecomputeKind::Selective;
  options.offload = config.memory.offload_activations;
  options.z_loss = config.optimizer.z_loss;
  if (session.model_config.description.drops) {
    options.context.dropout_key = static_cast<uint64_t>(config.run.seed);
  }
  const auto& buckets = session.flat->buckets();
  options.units =
      session.layout.rank_units(session.model_config.description, session.world->rank(),
                                {buckets.begin(), buckets.end()});
  for (const PassedTensor& tensor : session.model_config.description.passed) {
    options.passed.push_back(tensor.width);
  }
  const Layout& layout = session.layout;
  options.token_parts = layout.tensor.sequence ? layout.mesh->shape().tp : 1;
  options.context.attention = layout.attention;
  options.context.region = layout.region.get();
  options.context.router = router_context(session);
  options.capture = capture;
  options.profile = profile;
  if (session.world->size() > 1) {
    options.drive = [world = session.world] { world->progress(); };
  }
  return options;
}

}  // namespace longhaul::train
