#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "apps/inputs/checked_run.h"
#include "apps/program.h"
#include "apps/verbs.h"
#include "apps/verbs/auto_layout.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/read/saved_partition.h"
#include "longhaul/rehearsal/device.h"
#include "longhaul/rehearsal/rehearse.h"
#include "longhaul/system/progress.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::apps {
namespace {

constexpr int64_t kMostRanks = 16'384;
/// Each rank in play has addresses of its own, a terabyte and more.
constexpr unsigned kMostThreads = 64;

struct RehearseCall {
  std::string file;
  std::vector<std::string> sets;
  int64_t ranks = 0;  // 0: not given
  int64_t nodes = 0;
  int64_t ranks_per_node = 0;
  std::string hardware;
  double memory = 0.0;  // 0: not given
  int64_t steps = 2;
  int64_t micro_batches = -1;  // below 0: not given; 0: all
  std::vector<std::string> lacks;
  bool json = false;
};

/// What is told of a rehearsal.
struct Told {
  const rehearsal::Rehearsal& rehearsal;
  double room = 0.0;  ///< bytes of a device for tensors; 0: not known
  double seconds = 0.0;
  int64_t steps = 0;

  const rehearsal::PlayedRank& fullest() const {
    return *std::ranges::max_element(rehearsal.played, {},
                                     &rehearsal::PlayedRank::peak_bytes);
  }
  double lacking() const {
    const double over = static_cast<double>(fullest().peak_bytes) - room;
    return room > 0.0 ? std::max(over, 0.0) : 0.0;
  }
};

/// The machine that the call names, with the numbers that the call says otherwise.
struct RehearsedOn {
  explicit RehearsedOn(const RehearseCall& call) : node_ranks(call.ranks_per_node) {
    if (!call.hardware.empty()) {
      const HardwareProfile profile = machine_profile(call.hardware, 0.0);
      if (node_ranks == 0) node_ranks = profile.node.ranks;
      is_cpu = profile.device == "cpu";
      room = std::max(profile.node.device_bytes - profile.node.context_bytes, 0.0);
    }
    if (call.memory > 0.0) room = call.memory;
    if (call.nodes > 0 && node_ranks == 0) {
      fail_input("rehearse", "--nodes needs --hardware or --ranks-per-node");
    }
    ranks = call.nodes > 0 ? call.nodes * node_ranks : call.ranks;
    if (ranks == 0) fail_input("rehearse", "give --ranks N or --nodes N");
    if (ranks > kMostRanks) {
      fail_input("rehearse", "{} ranks; at most {} are rehearsed, give fewer nodes",
                 ranks, kMostRanks);
    }
  }

  int64_t node_ranks;
  int64_t ranks = 0;
  double room = 0.0;
  bool is_cpu = false;  ///< the node's memory, which ranks share, is not checked
};

OrderedJson json_of(const Told& told) {
  const rehearsal::Rehearsal& r = told.rehearsal;
  OrderedJson played = OrderedJson::array();
  for (const rehearsal::PlayedRank& one : r.played) {
    played.push_back({{"rank", one.rank},
                      {"place", one.place},
                      {"ranks", one.ranks},
                      {"state_bytes", one.state_bytes},
                      {"peak_bytes", one.peak_bytes},
                      {"operations", one.script->operations.size()}});
  }
  OrderedJson all = {
      {"ranks", r.ranks.size()},          {"steps", told.steps},
      {"micro_batches", r.micro_batches}, {"all_micro_batches", r.all_micro_batches},
      {"played", std::move(played)},      {"peak_bytes", told.fullest().peak_bytes},
      {"seconds", told.seconds}};
  if (told.room > 0.0) {
    all["room_bytes"] = told.room;
    all["lacking_bytes"] = told.lacking();
  }
  return all;
}

void print(const Told& told) {
  const rehearsal::Rehearsal& r = told.rehearsal;
  fmt::print("{}, of which {} differ; {} of {}{}\n", counted(std::ssize(r.ranks), "rank"),
             r.played.size(), counted(told.steps, "step"),
             counted(r.micro_batches, "micro batch", "micro batches"),
             r.micro_batches < r.all_micro_batches
                 ? fmt::format(" (of {}: the others repeat these)", r.all_micro_batches)
                 : "");
  fmt::print("\n  {:>6}  {:<24}  {:>6}  {:>10}  {:>10}  {:>10}\n", "rank", "place",
             "alike", "kept", "peak", "operations");
  for (const rehearsal::PlayedRank& one : r.played) {
    fmt::print("  {:>6}  {:<24}  {:>6}  {:>10}  {:>10}  {:>10}\n", one.rank, one.place,
               one.ranks, human_bytes(one.state_bytes), human_bytes(one.peak_bytes),
               one.script->operations.size());
  }
  size_t operations = 0;
  for (const rehearsal::ScriptedRank& rank : r.ranks) {
    operations += rank.script->operations.size();
  }
  fmt::print(
      "\noperations between ranks: {} in {} groups match, and every rank comes to "
      "its end\n",
      grouped(static_cast<int64_t>(operations)), r.groups.size());
  const rehearsal::PlayedRank& most = told.fullest();
  fmt::print("memory: the fullest is rank {} ({}) with {}", most.rank, most.place,
             human_bytes(most.peak_bytes));
  if (told.room > 0.0 && told.lacking() == 0.0) {
    fmt::print("; {} left",
               human_bytes(told.room - static_cast<double>(most.peak_bytes)));
  }
  fmt::print(
      "\nrehearsed in {:.0f} s; not rehearsed: values, the start's loading, what comes "
      "between steps (saves, validation, checks of replicas), plug-ins\n",
      told.seconds);
}

int rehearse(const RehearseCall& call) {
  const system::Stopwatch watch;
  const RehearsedOn on(call);
  const AutoCall choice{
      call.hardware, (on.ranks + on.node_ranks - 1) / std::max<int64_t>(on.node_ranks, 1),
      on.ranks, on.node_ranks};
  const std::vector<std::string> sets = with_auto_layout(call.file, call.sets, choice);
  const CheckedRun run = check_run(call.file, sets, on.ranks);
  check_planned(run);
  say_planned_warnings(run);
  RunConfig config = run.loaded.config;
  config.parallel.partition =
      checkpoint::partition_of_start(config, run.model->description);
  if (on.node_ranks == 0 && config.parallel.zero > 0 &&
      config.parallel.shard_group.kind == ShardGroup::Kind::Node) {
    fail_input("rehearse",
               "parallel.shard_group = \"node\" needs --ranks-per-node N or --hardware");
  }
  const layout::Placement placement =
      on.node_ranks > 0 ? layout::Placement::even(static_cast<int>(on.node_ranks))
                        : layout::Placement();
  int64_t most = call.micro_batches;
  if (most < 0) {
    most = rehearsal::enough_micro_batches(
        config,
        layout::describe_layout(config, run.model->description, on.ranks, placement));
  }
  rehearsal::install_device({call.lacks.begin(), call.lacks.end()});
  rehearsal::Rehearsal played;
  {
    system::Progress progress("rehearse", "ranks");
    played = rehearsal::play_ranks(
        {.config = config,
         .model = *run.model,
         .ranks = on.ranks,
         .placement = placement,
         .steps = call.steps,
         .most_micro_batches = most,
         .threads = static_cast<int>(
             std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads)),
         .told = progress.updates()});
  }
  if (const auto wrong = rehearsal::find_mismatch(played.ranks, played.groups)) {
    throw Error(
        ErrorKind::Internal, "rehearse",
        fmt::format("{}\nthe run would hang or fail there; this is a fault of the "
                    "program or of the layout's rules: report it with the run's "
                    "file",
                    *wrong));
  }
  const Told told{played, on.room, watch.seconds(), call.steps};
  if (call.json) {
    fmt::print("{}\n", json_text(json_of(told), 2));
  } else {
    print(told);
  }
  if (on.is_cpu && on.room == 0.0) {
    say_warning(
        "the memory of a node of CPUs is not checked here; longhaul plan counts it, and "
        "--memory BYTES checks a rank's");
  }
  if (told.lacking() == 0.0) return 0;
  const rehearsal::PlayedRank& fullest = told.fullest();
  const int64_t others = fullest.ranks - 1;
  fail_config("rehearse",
              "rank {} ({}){} needs {} for tensors, and a device has {}: {} are "
              "lacking; use more ranks of pp or tp, a higher parallel.zero, "
              "memory.recompute, or a smaller batch.micro_size",
              fullest.rank, fullest.place,
              others > 0 ? fmt::format(", like {} more,", counted(others, "rank")) : "",
              human_bytes(fullest.peak_bytes), human_bytes(told.room),
              human_bytes(told.lacking()));
}

}  // namespace

void add_rehearse(CLI::App& program, Outcome& outcome) {
  const auto call = std::make_shared<RehearseCall>();
  CLI::App* verb = program.add_subcommand(kRehearseVerb.name, kRehearseVerb.description);
  verb->add_option("file", call->file, "the run's TOML file")->required();
  add_set_option(*verb, call->sets, "; section.key= removes the key");
  CLI::Option* ranks = verb->add_option("--ranks", call->ranks, "number of ranks")
                           ->check(CLI::Range(int64_t{1}, kMostRanks));
  verb->add_option("--nodes", call->nodes, "number of nodes, in place of --ranks")
      ->check(CLI::Range(int64_t{1}, kMostRanks))
      ->excludes(ranks);
  verb->add_option(
          "--ranks-per-node", call->ranks_per_node,
          "ranks on each node (default: those of --hardware, else all on one node)")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--hardware,--gpu", call->hardware,
                   "a machine that comes along (a wrong name lists them), or the file of "
                   "a profile: how much memory a device has");
  verb->add_option(
          "--memory", call->memory,
          "bytes of a device for tensors, such as 78e9, in place of the machine's")
      ->check(CLI::PositiveNumber);
  verb->add_option("--steps", call->steps, "steps that every rank trains")
      ->capture_default_str()
      ->check(CLI::Range(1, 10));
  verb->add_option("--micro-batches", call->micro_batches,
                   "the most micro batches of a step; 0: all (default: enough to fill "
                   "the pipeline "
                   "twice)")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--lacks", call->lacks,
                   "an operation that the device is to lack, such as aten::mm: tells "
                   "whether the run needs it");
  verb->add_flag("--json", call->json, "every number, machine-readable");
  verb->footer(
      "The run's own code trains the first steps of every distinct rank in this process, "
      "at\nfull size, on memory without pages: no device, no weights and no data are "
      "needed "
      "(docs/planning.md).\nNot rehearsed: values, the start's loading, saves, "
      "validation, "
      "and the operations of\na plug-in.\n"
      "Example: longhaul rehearse run.toml --nodes 16 --hardware p5.48xlarge");
  verb->callback([call, &outcome] { outcome.exit_code = rehearse(*call); });
}

}  // namespace longhaul::apps
