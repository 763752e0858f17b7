#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/links/group_exchanges.h"
#include "apps/named_model.h"
#include "apps/program.h"
#include "apps/ranks.h"
#include "apps/verbs.h"
#include "longhaul/base/build_info.h"
#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/base/process.h"
#include "longhaul/base/text.h"
#include "longhaul/comm/hosts.h"
#include "longhaul/config/hardware_profile.h"
#include "longhaul/config/load.h"
#include "longhaul/device/device.h"
#include "longhaul/device/neuron_library.h"
#include "longhaul/families/adapter.h"
#include "longhaul/families/network.h"
#include "longhaul/format/dtype.h"
#include "longhaul/layout/rank_costs.h"
#include "longhaul/measure/causes.h"
#include "longhaul/measure/compute.h"
#include "longhaul/measure/exchanges.h"
#include "longhaul/measure/moving.h"
#include "longhaul/monitor/profile_table.h"
#include "longhaul/ops/kernels/cpu.h"
#include "longhaul/plan/machine.h"
#include "longhaul/plan/step_estimate.h"
#include "longhaul/run/files.h"
#include "longhaul/run/step_record.h"
#include "longhaul/session/layout.h"
#include "longhaul/session/threads.h"
#include "longhaul/system/progress.h"
#include "longhaul/tensor/cpu_memory.h"
#include "longhaul/train/trainer.h"

namespace longhaul::apps {
namespace {

struct BenchArguments {
  std::string file;  ///< of a run; empty: the machine alone
  std::vector<std::string> sets;
  std::string out;
  std::string hardware;
  std::string directory = ".";
  RunSection run;  ///< without a file: which device
  int64_t steps = 9;
  bool quick = false;
  bool json = false;
};

/// Makes a directory for what a measurement writes.
ScratchPath make_scratch(const fs::path& parent) {
  fs::path path = parent / fmt::format(".longhaul-bench-{}", ::getpid());
  fs::create_directories(path);
  return ScratchPath(std::move(path));
}

constexpr int kRounds = 7;
constexpr int kQuickRounds = 3;

HardwareProfile measure_machine(const BenchArguments& arguments, bool only_compute,
                                at::Device device, comm::Communicator& world,
                                const fs::path& scratch) {
  std::vector<measure::Probe> probes = measure::compute_probes(device);
  const auto add = [&](std::vector<measure::Probe> more) {
    for (measure::Probe& probe : more) probes.push_back(std::move(probe));
  };
  add(measure::group_probes(world));
  if (!only_compute && !arguments.quick) {
    add(measure::data_probes(scratch));
    add(measure::disk_probes(scratch));
  }
  system::Progress progress("bench", "runs");
  measure::Rounds rounds;
  rounds.count = arguments.quick || only_compute ? kQuickRounds : kRounds;
  if (world.rank() == 0) rounds.progress = progress.updates();
  HardwareProfile profile;
  profile.rates = measure::measure(probes, rounds);
  progress.finish();
  profile.device = device::name(device);
  profile.cpu = kernels::cpu_name();
  profile.threads = at::get_num_threads();
  profile.made = fmt::format("{}, {}", build_info().one_line(), utc_now());
  for (const MeasuredRate& rate : profile.rates) {
    const auto raise = [&](const char* begin, double& peak) {
      if (rate.name.starts_with(begin)) peak = std::max(peak, rate.median);
    };
    raise("product bf16", profile.peak_bf16);
    raise("product fp32", profile.peak_fp32);
  }
  return profile;
}

Json json_of(const HardwareProfile& profile) {
  Json rates = Json::array();
  for (const MeasuredRate& rate : profile.rates) {
    rates.push_back({{"name", rate.name},
                     {"unit", rate.unit + "/s"},
                     {"median", rate.median},
                     {"low", rate.low},
                     {"high", rate.high},
                     {"to_first", rate.to_first}});
  }
  return {{"device", profile.device},       {"cpu", profile.cpu},
          {"threads", profile.threads},     {"peak_bf16", profile.peak_bf16},
          {"peak_fp32", profile.peak_fp32}, {"rates", rates}};
}

void print_machine(const HardwareProfile& profile) {
  fmt::print("device   {}\ncpu      {}, {} threads a rank\n\n", profile.device,
             profile.cpu, profile.threads);
  fmt::print("{:<47} {:>14} {:>14} {:>14} {:>8}\n", "", "median", "lowest", "highest",
             "to first");
  for (const MeasuredRate& rate : profile.rates) {
    fmt::print("{:<47} {:>14} {:>14} {:>14} {:>8.3g}\n", rate.name,
               rate_text(rate.median, rate.unit), rate_text(rate.low, rate.unit),
               rate_text(rate.high, rate.unit), rate.to_first);
  }
}

/// Returns on rank 0 what the run's exchanges take, as a machine's profile has it.
std::vector<ExchangeProfile> profile_exchanges(const RunConfig& config, at::Device device,
                                               comm::Communicator& world,
                                               comm::Communicator& node) {
  std::vector<ExchangeProfile> found;
  for (const GroupExchange& one : measure_exchanges(config, device, world, node)) {
    if (world.rank() > 0 || one.spread.ranks == 1) continue;
    found.push_back({layout::group_name(one.line.group),
                     std::string(layout::operation_name(one.line)), one.spread.ranks,
                     one.spread.on_node, measure::fit_link(one.points)});
  }
  return found;
}

/// Measures the products of the run's experts. Returns nothing for a run without experts.
std::vector<MeasuredRate> measure_experts(const RunConfig& config, at::Device device) {
  if (!families::has_experts(load_run_model(config).network)) {
    return {};
  }
  const bool fp32 = config.precision.compute == ComputeType::Fp32;
  std::vector<MeasuredRate> rates =
      measure::measure(measure::grouped_probes(fp32 ? at::kFloat : at::kBFloat16, device),
                       {.count = kQuickRounds});
  rates.erase(rates.begin());  // the product that the others relate to
  return rates;
}

/// Returns the run's settings with its files in a scratch directory, few steps, and every
/// second of them profiled.
LoadedConfig bench_config(const BenchArguments& arguments, const fs::path& scratch) {
  std::vector<std::string> sets = arguments.sets;
  sets.insert(sets.end(), {"run.dir=" + (scratch / "run").string(),
                           fmt::format("run.steps={}", arguments.steps)});
  for (const char* const set :
       {"run.epochs=", "run.stop_after=", "run.until=", "run.budget=",
        "run.price_per_node_hour=", "run.hardware=", "run.expect=", "run.golden=",
        "checkpoint.every=0", "checkpoint.every_minutes=0", "checkpoint.dir=",
        "checkpoint.mirror=", "checkpoint.mirror_keep=", "data.validation=[]",
        "validation.tasks=[]", "log.tensorboard=false", "profile.steps=[]",
        "profile.every=2"}) {
    sets.emplace_back(set);
  }
  return load_run_config(arguments.file, sets);
}

measure::StepWork work_of(const RunConfig& config, int64_t world) {
  const ModelDescription model = load_run_model(config).description;
  const FlopsPerToken flops = model.flops_per_token(config.data.seq_len);
  const double tokens =
      static_cast<double>(config.batch.global_size * config.data.seq_len) /
      static_cast<double>(world);
  const DerivedBatch batch = derive_batch(config, world);
  const int64_t ways = config.parallel.tp * config.parallel.pp *
                       (config.parallel.zero > 0 ? batch.dp * config.parallel.cp : 1);
  int64_t trained = 0;
  for (const ParameterDescription& p : model.parameters()) {
    if (p.trained) trained += p.num_elements();
  }
  // Attention's kernels compute only the scores that the causal mask leaves.
  return {tokens * flops.products, tokens * (flops.causal - flops.products),
          plan::bytes_of_update(config.precision) * static_cast<double>(trained) /
              static_cast<double>(ways)};
}

struct MeasuredSteps {
  std::vector<run::ProfileEvent> profiles;  ///< but for the first steps
  std::vector<double> seconds;              ///< of steps that were not profiled
};

MeasuredSteps read_steps(const fs::path& run) {
  constexpr int64_t kWarmUps = 2;
  MeasuredSteps steps;
  const std::string events = read_text(run / run::kEventsFile);
  for (const std::string_view text : lines_of(events)) {
    const Json line = parse_json(text, run::kEventsFile);
    if (run::EventHead::read(line, run::first_bytes).kind != run::ProfileEvent::kKind)
      continue;
    auto event = run::read_event<run::ProfileEvent>(line, run::first_bytes);
    if (event.step > kWarmUps) steps.profiles.push_back(std::move(event));
  }
  const std::string metrics =
      read_text(run / run::kMetricsFile) + std::string(run::kRecordPadding, '\n');
  for (const std::string_view line : lines_of(metrics)) {
    const run::RunRecord record = run::read_record(line);
    const auto* step = std::get_if<run::StepRecord>(&record);
    if (step != nullptr && step->step > kWarmUps && step->step % 2 == 1) {
      steps.seconds.push_back(step->step_time);
    }
  }
  return steps;
}

/// Prints the rate of each product of a step, and which part of `ceiling` it reached, the
/// machine's peak rate.
void print_products(const run::ProfileEvent& step, double ceiling) {
  fmt::print("\n{:<44} {:>6} {:>9} {:>7} {:>8} {:>11}\n",
             "product, rows x summed x columns", "calls", "seconds", "share", "TFLOP/s",
             "of ceiling");
  for (const monitor::ProductRow& row : monitor::product_rows(step)) {
    fmt::print(
        "{:<44} {:>6} {:>9.4f} {:>6.1f}% {:>8.3g} {:>11}\n", row.title(), row.calls,
        row.seconds, 100.0 * row.seconds / step.seconds, row.rate() * 1e-12,
        ceiling > 0.0 ? fmt::format("{:.0f}%", 100.0 * row.rate() / ceiling) : "-");
  }
}

/// Prints how fast the run's groups exchange data, where that was measured.
void print_exchanges(const HardwareProfile& machine) {
  if (machine.exchanges.empty()) return;
  fmt::print("\n{:<34} {:>6} {:>9} {:>12} {:>14}\n", "exchange of a group", "ranks",
             "on a node", "latency us", "sent");
  for (const ExchangeProfile& one : machine.exchanges) {
    fmt::print("{:<34} {:>6} {:>9} {:>12.1f} {:>14}\n",
               fmt::format("{} {}", one.group, one.operation), one.ranks, one.on_node,
               1e6 * one.link.latency_s, rate_text(one.link.bytes_per_s, "B"));
  }
}

/// Prints how fast products of experts are, where that was measured.
void print_experts(const HardwareProfile& machine, bool bf16) {
  for (const int64_t rows : kGroupedRows) {
    const MeasuredRate* rate = machine.find(grouped_product_name(bf16, rows));
    if (rate == nullptr) continue;
    if (rows == kGroupedRows.front()) fmt::print("\n");
    fmt::print("{:<34} {:>14}\n", rate->name, rate_text(rate->median, rate->unit));
  }
}

/// Writes the profile to the file of --out, where there is one.
void write_profile(const BenchArguments& arguments, const HardwareProfile& profile) {
  if (arguments.out.empty()) return;
  write_text_atomic(arguments.out, to_toml(profile));
  if (!arguments.json) fmt::print("\nwrote {}\n", arguments.out);
}

void print_causes(const run::ProfileEvent& step,
                  const std::vector<measure::Cause>& causes, const MeasuredSteps& steps,
                  const BenchArguments& arguments) {
  std::vector<double> sorted = steps.seconds;
  std::ranges::sort(sorted);
  const double median = sorted.empty() ? step.seconds : sorted[sorted.size() / 2];
  double needed = 0.0;
  for (const measure::Cause& cause : causes) needed += cause.at_rate.value_or(0.0);
  if (arguments.json) {
    Json rows = Json::array();
    for (const measure::Cause& cause : causes) {
      Json row = {{"cause", cause.name}, {"seconds", cause.seconds}};
      if (cause.at_rate) row["at_rate"] = *cause.at_rate;
      rows.push_back(std::move(row));
    }
    fmt::print("{}\n", json_text(Json{{"step_seconds", median},
                                      {"profiled_seconds", step.seconds},
                                      {"at_rates", needed > 0.0 ? Json(needed) : Json()},
                                      {"causes", rows},
                                      {"products", step.products}}));
    return;
  }
  fmt::print(
      "\nA step takes {:.4f} s (median of {}; {:.4f} s while it was profiled). Its "
      "work at this machine's rates takes {}.\n\n",
      median, steps.seconds.size(), step.seconds,
      needed > 0.0 ? fmt::format("{:.4f} s: {:.2f} times that", needed, median / needed)
                   : "a time that is not known: none of its rates was measured");
  fmt::print("{:<34} {:>9} {:>7} {:>14} {:>9}\n", "cause", "seconds", "share",
             "at these rates", "lost");
  for (const measure::Cause& cause : causes) {
    const double lost = cause.seconds - cause.at_rate.value_or(0.0);
    fmt::print("{:<34} {:>9.4f} {:>6.1f}% {:>14} {:>9.4f}\n", cause.name, cause.seconds,
               100.0 * cause.seconds / step.seconds,
               cause.at_rate ? fmt::format("{:.4f}", *cause.at_rate) : "-", lost);
  }
}

void bench_run(const BenchArguments& arguments, const objects::Access& objects,
               const fs::path& scratch, const World& world, const World& node) {
  const LoadedConfig loaded = bench_config(arguments, scratch);
  const train::TrainResult result =
      train::run_training(loaded, world, {}, nullptr, train::Saving::No, objects);
  if (result.end != train::TrainEnd::Done) {
    throw TemporaryError("bench",
                         "the run was stopped before its last step, so nothing was "
                         "measured; start the bench again");
  }
  const at::Device device = device::choose(loaded.config.run.device, *node);
  HardwareProfile machine;
  if (arguments.hardware.empty()) {
    machine = measure_machine(arguments, /*only_compute=*/true, device, *world, scratch);
  } else {
    machine = parse_hardware_profile(read_text(arguments.hardware), arguments.hardware);
    check_machine(machine, arguments.hardware, device::name(device), kernels::cpu_name(),
                  at::get_num_threads());
  }
  if (!arguments.out.empty()) {
    machine.put_rates(measure_experts(loaded.config, device));
    machine.put_exchanges(profile_exchanges(loaded.config, device, *world, *node));
  }
  if (world->rank() > 0) return;
  const MeasuredSteps steps = read_steps(loaded.config.run.dir);
  const run::ProfileEvent& step = measure::typical_step(steps.profiles);
  const bool bf16 = loaded.config.precision.compute != ComputeType::Fp32;
  print_causes(step,
               measure::causes_of(step, work_of(loaded.config, world->size()), machine,
                                  bf16 ? "bf16" : "fp32"),
               steps, arguments);
  if (!arguments.json) {
    print_products(step, bf16 ? machine.peak_bf16 : machine.peak_fp32);
    print_experts(machine, bf16);
    print_exchanges(machine);
  }
  write_profile(arguments, machine);
}

void bench(const BenchArguments& arguments, const objects::Access& objects,
           const World& world) {
  const World node = comm::split_by_host(*world, "node");
  // The ranks of a machine share the parent directory, and each rank makes a directory of
  // its own in it.
  const ScratchPath scratch = make_scratch(arguments.directory);
  if (!arguments.file.empty()) {
    // All ranks write to the directory of rank 0.
    const std::string shared = world->gather_strings(scratch.path().string()).front();
    return bench_run(arguments, objects, shared, world, node);
  }
  (void)device::load_neuron_for(arguments.run, *world, *node);
  const at::Device device = device::choose(arguments.run.device, *node);
  device::check(device);
  session::set_threads(0, *node);
  const HardwareProfile profile =
      measure_machine(arguments, /*only_compute=*/false, device, *world, scratch.path());
  if (world->rank() > 0) return;
  if (arguments.json) {
    fmt::print("{}\n", json_text(json_of(profile)));
  } else {
    print_machine(profile);
  }
  write_profile(arguments, profile);
}

}  // namespace

void add_bench(CLI::App& program, Outcome& outcome) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* verb = program.add_subcommand(kBenchVerb.name, kBenchVerb.description);
  CLI::Option* const file = verb->add_option(
      "run", arguments->file,
      "a run's TOML file: measures how far its step is from what the machine can do");
  add_set_option(*verb, arguments->sets)->needs(file);
  verb->add_option("--out", arguments->out,
                   "file to which the machine's profile is written (for run.hardware and "
                   "plan); with a run it has the exchanges of the run's groups, too, and "
                   "the products of its experts");
  verb->add_option(
      "--hardware", arguments->hardware,
      "with a run: a profile of this machine; by default the machine is measured now");
  verb->add_option("--dir", arguments->directory,
                   "directory for temporary files; the disk that holds it is measured")
      ->capture_default_str();
  verb->add_option("--device", arguments->run.device, "device whose rates are measured")
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "neuron"}))
      ->capture_default_str();
  add_neuron_option(*verb, arguments->run.neuron_python);
  verb->add_option("--steps", arguments->steps, "steps that the run trains")
      ->check(CLI::Range(5, 1000))
      ->capture_default_str();
  verb->add_flag("--quick", arguments->quick,
                 "fewer rounds, without disk and data: takes seconds");
  verb->add_flag("--json", arguments->json, "one JSON object on standard output");
  verb->footer(
      "Examples:\n"
      "  longhaul bench --out machine.toml                 # products, attention, "
      "memory, disk\n"
      "  longhaul bench run.toml --hardware machine.toml   # where a step's time goes\n"
      "  mpirun -n 8 longhaul bench run.toml\n"
      "  mpirun -n 8 longhaul bench run.toml --out machine.toml   # for plan: the run's "
      "exchanges, too");
  verb->callback([arguments, &outcome] {
    tensor::tune_cpu_memory();
    outcome.exit_code = run_together(
        outcome.objects,
        std::bind_front(bench, std::cref(*arguments), std::cref(outcome.objects)),
        ResilienceSection{}.comm_timeout_s);
  });
}

}  // namespace longhaul::apps
