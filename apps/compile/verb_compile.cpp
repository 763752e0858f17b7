#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "apps/inputs/checked_run.h"
#include "apps/program.h"
#include "apps/ranks.h"
#include "apps/verbs.h"
#include "apps/verbs/auto_layout.h"
#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/read/saved_partition.h"
#include "longhaul/comm/agree.h"
#include "longhaul/device/compiled_keys.h"
#include "longhaul/device/device.h"
#include "longhaul/device/plugin.h"
#include "longhaul/device/tensor_collectives.h"
#include "longhaul/rehearsal/rehearse.h"
#include "longhaul/session/settle.h"
#include "longhaul/system/progress.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/tensor/cpu_memory.h"
#include "longhaul/tensor/device_limits.h"
#include "longhaul/train/sample_text.h"
#include "longhaul/train/start/kernel_cache.h"

namespace longhaul::apps {
namespace {

struct CompileCall {
  std::string file;
  std::vector<std::string> sets;
  int64_t ranks = 0;           // 0: as many as the verb has processes
  int64_t ranks_per_node = 0;  // 0: all of the run's
};

/// What the processes of the verb have compiled, in all.
struct Made {
  int64_t keys = 0;
  double seconds = 0.0;  ///< of compilers, which run at the same time
  int64_t bytes = 0;
};

Made take_made(comm::Communicator& world) {
  std::vector<double> sums(3, 0.0);
  for (const device::CompiledKey& key : device::compiled_keys()) {
    sums[0] += 1.0;
    sums[1] += key.seconds;
    sums[2] += static_cast<double>(key.bytes);
  }
  world.all_reduce_wait(sums, comm::ReduceOp::Sum);
  return {static_cast<int64_t>(sums[0]), sums[1], static_cast<int64_t>(sums[2])};
}

/// Returns the most tokens of a sequence that the run's sample texts have; 0: it has no
/// texts.
int64_t sample_tokens(const CheckedRun& run, const objects::Access& objects) {
  const RunConfig& config = run.loaded.config;
  if (config.log.prompts.empty()) return 0;
  return train::tokens_of_samples(
      train::encode_prompts(config, *run.model, objects).prompts, config.log);
}

void print(const Made& made, const rehearsal::Rehearsal& computed, double seconds) {
  fmt::print("{} of {}, computed in {:.0f} s\n",
             counted(std::ssize(computed.played), "kind"),
             counted(std::ssize(computed.ranks), "rank"), seconds);
  if (!device::lists_compiled_keys()) {
    fmt::print("the device's library does not say what it has compiled\n");
    return;
  }
  fmt::print("compiled: {}, {:.1f} s of compilers, {}\n", counted(made.keys, "key"),
             made.seconds, human_bytes(made.bytes));
  if (made.keys == 0) fmt::print("the cache had every key\n");
}

void compile(const CompileCall& call, const objects::Access& objects,
             const World& world) {
  const int64_t ranks = call.ranks > 0 ? call.ranks : world->size();
  const CheckedRun run = check_run(call.file, call.sets, ranks);
  check_planned(run);
  if (world->rank() == 0) say_planned_warnings(run);
  RunConfig config = run.loaded.config;
  config.run.compile_cache = "use";  // the run itself may forbid what is done ahead of it
  system::Logger log =
      world->rank() == 0 ? system::Logger::to_terminal() : system::Logger();
  const session::Machine machine = session::settle_process(config, world, log);
  if (tensor::limits_of(machine.device).any_shapes) {
    log.info("nothing has to be compiled on {}", device::name(machine.device));
    return;
  }
  train::fill_kernel_cache(config, *world, *machine.node, objects, log);
  config.parallel.partition =
      checkpoint::partition_of_start(config, run.model->description);
  const layout::Placement placement =
      call.ranks_per_node > 0
          ? layout::Placement::even(static_cast<int>(call.ranks_per_node))
          : layout::Placement();
  const auto layout =
      layout::describe_layout(config, run.model->description, ranks, placement);
  const auto mine = static_cast<size_t>(world->rank());
  const auto processes = static_cast<size_t>(world->size());
  const rehearsal::OnDevice on{
      .device = machine.device,
      .validates = !config.data.validation.empty(),
      .sample_tokens = sample_tokens(run, objects),
      .computes = [&](size_t kind) { return kind % processes == mine; }};
  const system::Stopwatch watch;
  rehearsal::Rehearsal computed;
  const rehearsal::RehearsalInputs inputs{
      .config = config,
      .model = *run.model,
      .ranks = ranks,
      .placement = placement,
      .most_micro_batches = rehearsal::enough_micro_batches(config, layout),
      .on_device = on};
  comm::do_and_meet(*world, [&] { computed = rehearsal::play_ranks(inputs); }, {});
  const bool together = ranks > 1 && world->size() == ranks;
  if (together) rehearsal::compute_together(inputs, world);
  const Made made = take_made(*world);
  if (world->rank() > 0) return;
  print(made, computed, watch.seconds());
  if (ranks > 1 && !together &&
      device::plugin_function(device::kPluginGroups) != nullptr) {
    say_warning(fmt::format(
        "the collectives of {} were not compiled, since they need all ranks: start the "
        "verb by as many processes as the run has ranks",
        counted(ranks, "rank")));
  }
}

}  // namespace

void add_compile(CLI::App& program, Outcome& outcome) {
  const auto call = std::make_shared<CompileCall>();
  CLI::App* verb = program.add_subcommand(kCompileVerb.name, kCompileVerb.description);
  verb->add_option("file", call->file, "the run's TOML file")->required();
  add_set_option(*verb, call->sets, "; section.key= removes the key");
  verb->add_option("--ranks", call->ranks,
                   "ranks of the run (default: the processes of this verb)")
      ->check(CLI::Range(int64_t{1}, int64_t{16'384}));
  verb->add_option("--ranks-per-node", call->ranks_per_node,
                   "ranks on each node (default: all on one)")
      ->check(CLI::Range(1, 4096));
  verb->footer(
      "For a device that compiles each shape of an operation, such as Trainium. Each "
      "distinct\nrank of the run does two steps, a validation and a sample text on this "
      "machine's devices, with\ndata that are made up; what is compiled stays in "
      "run.compile_cache_dir. Several processes share\nthe ranks out. Elsewhere nothing "
      "has to be compiled.\n"
      "Examples:\n"
      "  longhaul compile run.toml --ranks 64 --ranks-per-node 64\n"
      "  srun --mpi=pmix longhaul compile run.toml");
  verb->callback([call, &outcome] {
    tensor::tune_cpu_memory();
    outcome.exit_code = run_together(outcome.objects, [&](const World& world) {
      compile(*call, outcome.objects, world);
    });
  });
}

}  // namespace longhaul::apps
