#include "apps/verbs/planned_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <system_error>

#include "longhaul/base/file.h"
#include "longhaul/base/text.h"
#include "longhaul/families/network.h"
#include "longhaul/run/step_record.h"

namespace longhaul::apps {
namespace {

constexpr double kDaySeconds = 86400.0;
/// A run with less goodput is reported as one that does not end.
constexpr double kLeastGoodput = 0.01;

bool has_devices(const PlannedFigures& p) { return p.on.profile.device != "cpu"; }

double bytes_of(int64_t bytes) { return static_cast<double>(bytes); }

/// Returns the checkpoints that are on the disk at once; none: as many as the run makes.
std::optional<int64_t> checkpoints_at_once(const PlannedFigures& p) {
  const int64_t keep = p.asked.kept_checkpoints;
  if (keep == 0) return {};
  return keep + 1;
}

std::optional<double> free_bytes(const fs::path& dir) {
  std::error_code error;
  const fs::space_info space = fs::space(dir, error);
  if (error) return {};
  return static_cast<double>(space.available);
}

/// Returns lines for what a start looks at and a plan does not.
std::vector<std::string> lines_not_checked(const PlannedFigures& p) {
  std::vector<std::string> lines = p.run.elsewhere;
  const RunConfig& config = p.run.loaded.config;
  if (p.on.looked) {
    for (const fs::path& address : p.on.looked->addresses) {
      std::erase_if(lines, [&](const std::string& line) {
        return line.starts_with(address.string() + " is an address");
      });
    }
  }
  if (config.checkpoint.mirror) {
    lines.push_back(fmt::format("checkpoint.mirror: whether {} may be written",
                                *config.checkpoint.mirror));
  }
  if (!config.run.steps) {
    lines.emplace_back("run.epochs: how many steps they are follows from the data");
  }
  if (config.run.ends_by_speed()) {
    lines.emplace_back(
        "run.until, run.budget: the last step is that of the settings; measured speed "
        "ends the run earlier where it must");
  }
  if (p.on.replace_s && config.resilience.on_node_loss != NodeLossPolicy::Spare) {
    lines.emplace_back("resilience.on_node_loss: spares count as with \"spare\"");
  }
  if (!p.free_disk) {
    lines.push_back(
        fmt::format("run.dir: {} is not on this machine", config.run.dir.string()));
  }
  const std::string& device = config.run.device;
  if (device != "auto" && (device == "cpu") == has_devices(p)) {
    lines.push_back(fmt::format("run.device = \"{}\": the plan is that of {}", device,
                                p.on.profile.device));
  }
  if (const auto note = note_on_experts(*p.run.model, p.machine)) lines.push_back(*note);
  return lines;
}

/// Returns "12.3 GB", or "lacks 1.2 GB" where the room does not suffice.
std::string left_of(double room, double used) {
  return room >= used ? human_bytes(room - used) : "lacks " + human_bytes(used - room);
}

/// Returns "5.29 s", or, if the time is not known, which rate the machine lacks.
std::string seconds_text(const std::optional<double>& seconds, const char* missing) {
  if (!seconds) return fmt::format("not known, the machine has no {}", missing);
  return fmt::format("{:.3g} s", *seconds);
}

/// Says what experts at uneven loads hold.
void print_experts(const PlannedFigures& p) {
  if (!plan::has_experts(p.run.model->description)) return;
  if (p.uneven.empty()) {
    fmt::print("  experts count at even loads; --imbalance tells of others\n");
    return;
  }
  const plan::DeviceMemory& most = plan::fullest(p.uneven);
  fmt::print("  experts at {:g} times even loads: activations {}, work {}, all {}",
             p.on.imbalance, human_bytes(most.costs.activations.in_flight.total()),
             human_bytes(most.costs.activations.work), human_bytes(most.all()));
  if (has_devices(p)) {
    const double room = p.on.profile.node.device_bytes;
    fmt::print("; {}{}", left_of(room, most.all()), room >= most.all() ? " left" : "");
  }
  fmt::print("\n");
}

void print_memory(const PlannedFigures& p) {
  fmt::print("\nmemory of one rank of each stage{}\n",
             has_devices(p) ? fmt::format("; a device has {}",
                                          human_bytes(p.on.profile.node.device_bytes))
                            : "");
  fmt::print("  {:>5}  {:>9}  {:>9}  {:>9}  {:>9}  {:>11}  {:>11}  {:>9}", "stage",
             "weights", "gradients", "masters", "moments", "whole units", "activations",
             "work");
  if (has_devices(p)) fmt::print("  {:>9}  {:>9}", "tokens", "context");
  fmt::print("  {:>9}", "all");
  if (has_devices(p)) fmt::print("  left");
  fmt::print("\n");
  for (size_t i = 0; i < p.memory.size(); ++i) {
    const plan::DeviceMemory& one = p.memory[i];
    const layout::StateBytes& state = one.costs.state;
    fmt::print("  {:>5}  {:>9}  {:>9}  {:>9}  {:>9}  {:>11}  {:>11}  {:>9}",
               p.asked.stages[i].stage, human_bytes(state.weights),
               human_bytes(state.gradients), human_bytes(state.masters),
               human_bytes(state.moments),
               human_bytes(one.costs.whole.weights + one.costs.whole.gradients),
               human_bytes(one.costs.activations.in_flight.total()),
               human_bytes(one.costs.activations.work));
    if (has_devices(p)) {
      fmt::print("  {:>9}  {:>9}", human_bytes(one.costs.activations.tokens),
                 human_bytes(one.context));
    }
    fmt::print("  {:>9}", human_bytes(one.all()));
    if (has_devices(p)) {
      fmt::print("  {}", left_of(p.on.profile.node.device_bytes, one.all()));
    }
    fmt::print("\n");
  }
  print_experts(p);
  const double host = p.on.profile.node.host_bytes;
  fmt::print("memory of a node, which has {}\n  {:>9}  {:>16}  {:>11}  {:>9}  left\n",
             human_bytes(host), "ranks", "copies for saves", "peer memory", "all");
  fmt::print("  {:>9}  {:>16}  {:>11}  {:>9}  {}\n", human_bytes(p.host.ranks),
             human_bytes(p.host.saves), human_bytes(p.host.peers),
             human_bytes(p.host.all()), left_of(host, p.host.all()));
}

void print_step(const PlannedFigures& p) {
  const plan::StepEstimate& step = p.step;
  fmt::print(
      "\na step takes {:.3g} s, on the stage that computes longest\n  {:<30}  {:>10}  "
      "{:>10}  {:>6}\n",
      step.seconds, "cause", "exposed s", "hidden s", "share");
  for (const plan::TimePart& part : step.parts) {
    fmt::print("  {:<30}  {:>10.4g}  {:>10.4g}  {:>5.1f}%\n", part.name, part.seconds,
               part.hidden, 100.0 * part.seconds / step.seconds);
  }
  fmt::print("  bubble {:.1f}%; {} tokens/s, {} per device", 100.0 * step.bubble,
             grouped(std::llround(step.tokens_per_s)),
             grouped(std::llround(step.tokens_per_s / static_cast<double>(p.on.ranks))));
  if (p.machine.peak > 0.0) {
    fmt::print("; mfu {:.1f}%, causal {:.1f}%", 100.0 * step.mfu,
               100.0 * step.mfu_causal);
  }
  fmt::print("\n");
}

/// Prints what so many seconds take, behind a line's head.
void print_total(const PlannedFigures& p, const std::string& head, double seconds) {
  const NodeProfile& node = p.on.profile.node;
  const plan::RunTotals total = plan::totals_of(p.cluster(), seconds);
  fmt::print("  {:<30}  {:>10.4g}  {:>12.5g}", head, total.seconds / kDaySeconds,
             total.node_hours);
  fmt::print("  {:>10}", node.watts > 0.0 ? fmt::format("{:.4g}", total.kilowatt_hours)
                                          : "not known");
  fmt::print("  {}\n",
             node.price_per_hour > 0.0
                 ? fmt::format("{} {}", grouped(std::llround(total.money)), node.currency)
                 : "not counted");
}

void print_totals(const PlannedFigures& p) {
  const double tokens = bytes_of(p.asked.layout.batch.tokens_per_step);
  if (p.steps == 0) {
    fmt::print("\nthe run in steps of {} tokens: its length is not checked\n",
               grouped(p.asked.layout.batch.tokens_per_step));
    return;
  }
  const double seconds = static_cast<double>(p.steps) * p.step.seconds;
  fmt::print(
      "\nthe run: {} steps, {:.4g} tokens\n  {:<30}  {:>10}  {:>12}  {:>10}  money\n",
      grouped(p.steps), static_cast<double>(p.steps) * tokens, "", "days", "node hours",
      "kWh");
  print_total(p, "without failures", seconds);
  for (const plan::FailureOutlook& outlook : p.failures) {
    const std::string head =
        fmt::format("failures each {:g} node hours", outlook.node_hours);
    if (outlook.goodput < kLeastGoodput) {
      const bool stands = outlook.spares && outlook.spares->waits > 0.5;
      fmt::print("  {}: the run does not end; {}\n", head,
                 stands ? "it waits for nodes most of the time"
                        : "it fails too often between two saves");
    } else {
      print_total(p, head, seconds / outlook.goodput);
    }
  }
}

void print_storage(const PlannedFigures& p) {
  const double bytes = bytes_of(p.asked.checkpoint_bytes);
  const auto kept = checkpoints_at_once(p);
  fmt::print("\na checkpoint: {}\n  to write it and to read it: {}\n", human_bytes(bytes),
             seconds_text(p.saves.write, "node.disk_bytes_per_s"));
  const bool waits =
      p.saves.stall && p.saves.waits && p.run.loaded.config.checkpoint.async_;
  fmt::print(
      "  a save holds training up: {}{}\n",
      seconds_text(p.saves.stall, "node.disk_bytes_per_s"),
      waits ? ", as long as it takes; the machine has no node.copy_bytes_per_s" : "");
  fmt::print("  checkpoint.keep = {}: {}", p.asked.kept_checkpoints,
             kept ? fmt::format("{}, with one more while it is saved",
                                human_bytes(bytes * bytes_of(*kept)))
                  : "all of them stay");
  if (p.free_disk) {
    fmt::print("; {} has {} free", p.run.loaded.config.run.dir.string(),
               human_bytes(*p.free_disk));
    if (kept && bytes * bytes_of(*kept) > *p.free_disk) {
      fmt::print(", {}", left_of(*p.free_disk, bytes * bytes_of(*kept)));
    }
  }
  fmt::print("\n");
}

/// Returns how long an exchange of one node with an object store takes.
std::optional<double> store_seconds(const PlannedFigures& p, double bytes) {
  const double rate = p.on.profile.node.store_bytes_per_s;
  if (rate <= 0.0) return {};
  return bytes / rate;
}

int64_t kept_in_mirror(const PlannedFigures& p) {
  return p.run.loaded.config.checkpoint.mirror_keep.value_or(p.asked.kept_checkpoints);
}

/// Returns the bytes that data.cache has room for, as far as they are known.
std::optional<double> cache_room(const PlannedFigures& p) {
  const DataSection& data = p.run.loaded.config.data;
  std::optional<double> room = free_bytes(data.cache);
  if (data.cache_gb > 0.0) {
    const double most = 1e9 * data.cache_gb;
    room = room ? std::min(*room, most) : most;
  }
  return room;
}

void print_stores(const PlannedFigures& p) {
  const RunConfig& config = p.run.loaded.config;
  constexpr const char* kRate = "node.store_bytes_per_s";
  if (config.checkpoint.mirror) {
    const int64_t keep = kept_in_mirror(p);
    const double bytes = bytes_of(p.asked.checkpoint_bytes);
    const auto& seconds = p.saves.mirror;
    const bool behind =
        seconds && !p.failures.empty() && *seconds > p.failures.front().interval_s;
    fmt::print("  checkpoint.mirror: {}; a copy takes {}{}\n",
               keep > 0 ? fmt::format("{} in {}", human_bytes(bytes * bytes_of(keep + 1)),
                                      *config.checkpoint.mirror)
                        : "all of them stay",
               seconds_text(seconds, kRate),
               behind ? ", longer than from save to save: it leaves some out" : "");
  }
  if (!p.on.looked) return;
  const LookedData& looked = *p.on.looked;
  if (looked.packed > 0.0) {
    fmt::print("  ready ids at addresses: {}, packed from the store by one rank\n",
               human_bytes(looked.packed));
  }
  if (looked.copied == 0.0) return;
  fmt::print("  data at addresses: {}, which each node copies to data.cache {}: {}",
             human_bytes(looked.copied),
             config.data.shuffle ? "before step 1" : "as it reads it",
             seconds_text(store_seconds(p, looked.copied), kRate));
  if (const auto room = cache_room(p)) {
    fmt::print("; room here {}", human_bytes(*room));
    if (*room < looked.copied) fmt::print(", {}", left_of(*room, looked.copied));
  }
  fmt::print("\n");
}

void print_goodput(const PlannedFigures& p) {
  const CheckpointSection& checkpoint = p.run.loaded.config.checkpoint;
  if (p.failures.empty()) {
    fmt::print("\ngoodput is not known: {}\n",
               p.saves.write ? "the run saves at its end only, and its length is not "
                               "checked"
                             : "the machine has no node.disk_bytes_per_s");
    return;
  }
  fmt::print(
      "\ngoodput with checkpoint.every = {}{}, and with the best interval\n"
      "  {:>13}  {:>10}  {:>8}  {:>8}  {:>10}  {:>8}  {:>8}\n",
      checkpoint.every,
      checkpoint.every_minutes > 0.0
          ? fmt::format(", every_minutes = {:g}", checkpoint.every_minutes)
          : "",
      "node hours", "failure", "saves", "goodput", "best saves", "steps", "goodput");
  for (const plan::FailureOutlook& outlook : p.failures) {
    fmt::print("  {:>13g}  {:>10}  {:>8}  {:>7.2f}%  {:>10}  {:>8}  {:>7.2f}%\n",
               outlook.node_hours, human_duration(outlook.costs.between_s),
               human_duration(outlook.interval_s), 100.0 * outlook.goodput,
               human_duration(outlook.best_interval_s), outlook.best_steps,
               100.0 * outlook.best_goodput);
  }
}

void print_spares(const PlannedFigures& p) {
  if (p.failures.empty()) return;
  if (!p.on.replace_s) {
    fmt::print(
        "  each lost node is replaced at once; --replace-hours and --spares tell more\n");
    return;
  }
  const double restart = p.failures.front().costs.restart_s;
  fmt::print(
      "spares: training goes on {} after a failure with a spare, {} without\n"
      "  {:>13}  {:>10}  {:>8}  {:>8}  {:>11}  {:>11}  {:>8}  {:>11}\n",
      human_duration(restart), human_duration(restart + *p.on.replace_s), "node hours",
      "spares", "waiting", "goodput", "a paid node", "best spares", "goodput",
      "a paid node");
  for (const plan::FailureOutlook& outlook : p.failures) {
    fmt::print("  {:>13g}", outlook.node_hours);
    fmt::print("  {:>10}  {:>7.2f}%  {:>7.2f}%  {:>10.2f}%", outlook.spares->spares,
               100.0 * outlook.spares->waits, 100.0 * outlook.spares->goodput,
               100.0 * outlook.spares->per_node);
    fmt::print("  {:>11}  {:>7.2f}%  {:>10.2f}%\n", outlook.best_spares->spares,
               100.0 * outlook.best_spares->goodput,
               100.0 * outlook.best_spares->per_node);
  }
}

OrderedJson number_or_null(const std::optional<double>& number) {
  return number ? OrderedJson(*number) : OrderedJson(nullptr);
}

void add_stores(const PlannedFigures& p, OrderedJson& storage) {
  if (p.run.loaded.config.checkpoint.mirror) {
    storage["mirror_keep"] = kept_in_mirror(p);
    storage["mirror_s"] = number_or_null(p.saves.mirror);
  }
  if (!p.on.looked) return;
  storage["copied_bytes"] = p.on.looked->copied;
  storage["copied_s"] = number_or_null(store_seconds(p, p.on.looked->copied));
  storage["packed_bytes"] = p.on.looked->packed;
  storage["cache_room_bytes"] = number_or_null(cache_room(p));
}

OrderedJson memory_json(const PlannedFigures& p) {
  OrderedJson out;
  out["device_bytes"] = p.on.profile.node.device_bytes;
  out["ranks"] = OrderedJson::array();
  for (size_t i = 0; i < p.memory.size(); ++i) {
    const plan::DeviceMemory& one = p.memory[i];
    OrderedJson rank = {{"pp", p.asked.stages[i].stage},
                        {"token_bytes", one.costs.activations.tokens},
                        {"context_bytes", one.context},
                        {"all_bytes", one.all()}};
    if (has_devices(p)) {
      rank["left_bytes"] = p.on.profile.node.device_bytes - one.all();
    }
    if (!p.uneven.empty()) rank["uneven_bytes"] = p.uneven[i].all();
    out["ranks"].push_back(std::move(rank));
  }
  out["node"] = {{"host_bytes", p.on.profile.node.host_bytes},
                 {"rank_bytes", p.host.ranks},
                 {"save_bytes", p.host.saves},
                 {"peer_bytes", p.host.peers},
                 {"left_bytes", p.on.profile.node.host_bytes - p.host.all()}};
  return out;
}

OrderedJson step_json(const PlannedFigures& p) {
  OrderedJson out;
  out["seconds"] = p.step.seconds;
  out["parts"] = OrderedJson::array();
  for (const plan::TimePart& part : p.step.parts) {
    out["parts"].push_back(
        {{"cause", part.name}, {"exposed_s", part.seconds}, {"hidden_s", part.hidden}});
  }
  out["bubble"] = p.step.bubble;
  out["tokens"] = p.asked.layout.batch.tokens_per_step;
  out[run::kTokensPerSecondKey] = p.step.tokens_per_s;
  out[run::kMfuKey] = p.step.mfu;
  out[run::kMfuCausalKey] = p.step.mfu_causal;
  return out;
}

OrderedJson total_json(const PlannedFigures& p, double seconds) {
  const NodeProfile& node = p.on.profile.node;
  const plan::RunTotals total = plan::totals_of(p.cluster(), seconds);
  return {{"seconds", total.seconds},
          {"node_hours", total.node_hours},
          {"kwh", node.watts > 0.0 ? OrderedJson(total.kilowatt_hours) : nullptr},
          {"money", node.price_per_hour > 0.0 ? OrderedJson(total.money) : nullptr},
          {"currency", node.currency}};
}

OrderedJson spares_json(const std::optional<plan::SpareOutlook>& with) {
  if (!with) return nullptr;
  return {{"spares", with->spares},
          {"waits", with->waits},
          {"goodput", with->goodput},
          {"goodput_per_paid_node", with->per_node}};
}

OrderedJson failures_json(const PlannedFigures& p, double seconds) {
  OrderedJson out = OrderedJson::array();
  for (const plan::FailureOutlook& outlook : p.failures) {
    OrderedJson one = {{"node_hours", outlook.node_hours},
                       {"between_s", outlook.costs.between_s},
                       {"restart_s", outlook.costs.restart_s},
                       {"interval_s", outlook.interval_s},
                       {"goodput", outlook.goodput},
                       {"best_interval_s", outlook.best_interval_s},
                       {"best_steps", outlook.best_steps},
                       {"best_goodput", outlook.best_goodput},
                       {"spares", spares_json(outlook.spares)},
                       {"best_spares", spares_json(outlook.best_spares)}};
    if (p.steps > 0 && outlook.goodput >= kLeastGoodput) {
      one["run"] = total_json(p, seconds / outlook.goodput);
    }
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

std::optional<std::string> note_on_experts(const ModelConfig& model,
                                           const plan::Machine& machine) {
  if (!machine.grouped_rates.empty() || !families::has_experts(model.network)) return {};
  return "products of experts: the machine has no rate of grouped products, so that they "
         "count as fast as others, though few rows of an expert are slower; longhaul "
         "bench RUN.toml --out FILE measures it";
}

PlannedFigures::PlannedFigures(const CheckedRun& checked, const PlannedOn& planned_on)
    : run(checked),
      on(planned_on),
      asked(describe_run(run.loaded.config, run.model->description, on.ranks,
                         on.node_ranks, on.profile.device)),
      machine(plan::machine_of(on.profile, on.name,
                               run.loaded.config.precision.compute != ComputeType::Fp32,
                               on.ranks, on.node_ranks)),
      step(plan::estimate_step(
          {run.loaded.config, run.model->description, asked.layout, asked.costs},
          machine)) {
  const RunConfig& config = run.loaded.config;
  if (config.run.steps) steps = last_step(config, *config.run.steps);
  memory = plan::device_memory(config, run.model->description, asked.layout, asked.costs,
                               on.profile);
  if (on.imbalance > 1.0) {
    uneven = plan::device_memory(config, run.model->description, asked.layout,
                                 asked.costs, on.profile, on.imbalance);
  }
  host = plan::host_memory(cluster(), plan::fullest(memory).all());
  saves = plan::save_times(cluster());
  free_disk = free_bytes(config.run.dir);
  for (const double hours : on.failure_hours) {
    const auto outlook = plan::failure_outlook(
        cluster(), {hours, on.restart_s, on.replace_s}, step.seconds, steps);
    if (outlook) failures.push_back(*outlook);
  }
  not_checked = lines_not_checked(*this);
}

plan::Cluster PlannedFigures::cluster() const {
  return {run.loaded.config, on.profile, machine,
          on.ranks,          on.nodes,   bytes_of(asked.checkpoint_bytes),
          on.spares};
}

void print_plan(const PlannedFigures& p) {
  fmt::print("{} on {}: {} of {}", p.run.loaded.config.run.dir.string(),
             counted(p.on.ranks, "rank"), counted(p.on.nodes, "node"), p.on.name);
  if (p.on.spares > 0) fmt::print(", and {}", counted(p.on.spares, "spare"));
  fmt::print("\n{}\n", p.asked.layout.describe());
  if (const std::string chosen = chosen_text(p.run.loaded.config); !chosen.empty()) {
    fmt::print("{}\n", chosen);
  }
  if (!p.on.profile.comparison_only.empty()) {
    fmt::print("comparison only: {}\n", p.on.profile.comparison_only);
  }
  print_memory(p);
  print_step(p);
  print_totals(p);
  print_storage(p);
  print_stores(p);
  print_goodput(p);
  print_spares(p);
  fmt::print("\nnot checked{}\n", p.not_checked.empty() ? ": nothing" : "");
  for (const std::string& line : p.not_checked) fmt::print("  {}\n", line);
}

OrderedJson plan_json(const PlannedFigures& p) {
  OrderedJson out;
  out["hardware"] = p.on.name;
  out["comparison_only"] = p.on.profile.comparison_only;
  out["ranks"] = p.on.ranks;
  out["nodes"] = p.on.nodes;
  out["spares"] = p.on.spares;
  out["ranks_per_node"] = p.on.node_ranks;
  if (const std::string chosen = chosen_text(p.run.loaded.config); !chosen.empty()) {
    out["auto"] = chosen;
  }
  out["layout"] = layout_json(p.asked);
  out["memory"] = memory_json(p);
  out["step"] = step_json(p);
  const double seconds = static_cast<double>(p.steps) * p.step.seconds;
  if (p.steps > 0) {
    out["run"] = total_json(p, seconds);
    out["run"]["steps"] = p.steps;
    out["run"]["tokens"] =
        static_cast<double>(p.steps) * bytes_of(p.asked.layout.batch.tokens_per_step);
  }
  out["storage"] = {{"checkpoint_bytes", p.asked.checkpoint_bytes},
                    {"keep", p.asked.kept_checkpoints},
                    {"write_s", number_or_null(p.saves.write)},
                    {"read_s", number_or_null(p.saves.read)},
                    {"stall_s", number_or_null(p.saves.stall)},
                    {"free_bytes", number_or_null(p.free_disk)}};
  add_stores(p, out["storage"]);
  out["failures"] = failures_json(p, seconds);
  out["not_checked"] = p.not_checked;
  return out;
}

}  // namespace longhaul::apps
