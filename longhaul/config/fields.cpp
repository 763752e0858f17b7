// This file and those named *_fields.cpp are the reference, and data_rules.cpp for
// [data]. Every key of every section is described once.
#include "longhaul/config/fields.h"

#include "longhaul/config/rules.h"
#include "longhaul/config/special_codecs.h"
#include "longhaul/run/files.h"

namespace longhaul {

constexpr auto names_of(PipelineKind) {
  return std::array{"gpipe", "1f1b", "interleaved", "zb-h1"};
}
constexpr auto names_of(ContextKind) { return std::array{"ring", "gather"}; }
constexpr auto names_of(BalanceKind) {
  return std::array{"model", "off", "sequence", "global", "pooled"};
}
constexpr auto names_of(RecomputeKind) { return std::array{"none", "selective", "full"}; }
constexpr auto names_of(ComputeType) { return std::array{"fp32", "bf16", "fp8"}; }
constexpr auto names_of(MasterType) { return std::array{"fp32", "bf16_sr"}; }
constexpr auto names_of(StateType) { return std::array{"fp32", "bf16"}; }
constexpr auto names_of(OptimizerKind) { return std::array{"adamw", "lamb"}; }
constexpr auto names_of(AdamConvention) { return std::array{"torch", "hf"}; }
constexpr auto names_of(ScheduleKind) {
  return std::array{"cosine", "linear", "constant", "wsd", "smp"};
}
constexpr auto names_of(ContinueKind) { return std::array{"keep", "rewarm", "decay"}; }
constexpr auto names_of(WarmupStart) { return std::array{"zero", "nonzero"}; }
constexpr auto names_of(DecayForm) {
  return std::array{"cosine", "linear", "sqrt", "exponential", "plateau", "constant"};
}
constexpr auto names_of(NodeLossPolicy) { return std::array{"spare", "wait", "shrink"}; }
constexpr auto names_of(ResultsForm) {
  return std::array{"longhaul", "nxd", "nxd-zero1", "bert"};
}
constexpr auto names_of(BadStepPolicy) { return std::array{"stop", "skip", "rollback"}; }

using config::Fields;
using config::make_field;
using enum ResumeClass;

namespace {
// Sizes beyond these are typing errors, and products of them still fit 64 bits.
constexpr auto kMaxSteps = static_cast<double>(config::kMaxSteps);
constexpr double kMaxSequences = 1e9;
constexpr double kMaxRanks = 1e6;
}  // namespace

namespace {
Fields fields_of_device(RunSection& s) {
  return {
      make_field("device", s.device, Logged,
                 "auto | cpu | cuda | neuron | plugin; auto takes an accelerator where "
                 "one is found"),
      make_field("device_plugin", s.device_plugin, Logged,
                 "a shared library that brings LibTorch another device (PrivateUse1)")
          .when_absent("none"),
      make_field(
          "neuron_python", s.neuron_python, Logged,
          "with device = \"neuron\": the Python interpreter of the environment that "
          "has torch_neuronx, a name in PATH or a path"),
      make_field(
          "device_fallback", s.device_fallback, Logged,
          "error | warn: what a run does about operations that its device lacks and "
          "that therefore run on the CPU"),
      make_field(
          "compile_cache", s.compile_cache, Free,
          "use | only: whether a device that compiles each shape of an operation may "
          "compile what the cache lacks; only ends the run with the operation's name")
          .one_of({"use", "only"}),
      make_field("compile_cache_dir", s.compile_cache_dir, Free,
                 "the folder of compiled kernels, for all ranks to share")
          .when_absent("TORCH_NEURONX_NEFF_CACHE_DIR, else ~/.cache/longhaul/neuron"),
      make_field("compile_cache_from", s.compile_cache_from, Free,
                 "a folder of compiled kernels, or its address, from which a start fills "
                 "compile_cache_dir")
          .may_be_address()
          .when_absent("the cache is not filled"),
  };
}
}  // namespace

Fields fields_of(RunSection& s) {
  Fields fields = {
      make_field("dir", s.dir, Free,
                 "the run's directory, which is created; one run at a time may write it")
          .must_be_given(),
      make_field("steps", s.steps, Logged,
                 "optimizer steps of the run, and the schedule's horizon")
          .within(1, kMaxSteps)
          .when_absent("run.epochs says; one of the two is required"),
      make_field("epochs", s.epochs, Logged,
                 "passes over data.train, in whole optimizer steps; instead of steps")
          .above(0)
          .when_absent("run.steps says"),
      make_field("stop_after", s.stop_after, Free,
                 "end after this step without changing the schedule")
          .within(1, kMaxSteps)
          .when_absent("the last step"),
      make_field("until", s.until, Logged,
                 "with wsd: the date by which the run ends, of UTC where no zone is "
                 "given. Measured speed decides where the decay begins and the run ends")
          .when_absent("run.steps or run.epochs end the run"),
      make_field("budget", s.budget, Logged,
                 "with wsd: the money that the node hours of all starts may cost; as "
                 "until")
          .above(0)
          .when_absent("run.steps or run.epochs end the run"),
      make_field("price_per_node_hour", s.price_per_node_hour, Logged,
                 "what a node costs an hour, in the unit of budget")
          .above(0)
          .when_absent("not known; budget needs it"),
      make_field("seed", s.seed, Match, "seed of random weights, data order and dropout")
          .at_least(0),
      make_field("hardware", s.hardware, Free,
                 "file that `longhaul bench --out` wrote on this machine; mfu relates to "
                 "the peak in it")
          .when_absent("a product's rate is measured at start"),
      make_field("deterministic", s.deterministic, Logged,
                 "make the run bitwise repeatable")
          .when_absent("true on a CPU, false elsewhere"),
      make_field("threads", s.threads, Logged,
                 "CPU threads per rank; 0: OMP_NUM_THREADS, else the rank's share of the "
                 "CPUs that its job may use")
          .within(0, 4096),
      make_field("fused", s.fused, Logged,
                 "use fused kernels; false: composite operations everywhere"),
      make_field("expect", s.expect, Free,
                 "the least throughput: the run saves and ends with 79 once the mean of "
                 "the last steps is lower than tokens_per_s by more than tolerance; "
                 "on_miss = \"warn\" only warns")
          .when_absent("no throughput is too low"),
      make_field(
          "golden", s.golden, Free,
          "expected losses, in file (which `longhaul report --against` reads too) or in "
          "losses = [{ step, loss }]. The run saves and ends with 79 once a step's loss "
          "differs from them by more than tolerance; on_miss = \"warn\" only warns")
          .when_absent("no loss is compared"),
      make_field("pass_environment", s.pass_environment, Free,
                 "names of environment variables, with * for any text, that `longhaul "
                 "launch` and `longhaul submit` hand on to every rank besides those of "
                 "the network and of AWS"),
  };
  const auto after_seed = std::ranges::find(fields, "seed", &config::Field::key) + 1;
  Fields device = fields_of_device(s);
  fields.insert(after_seed, std::move_iterator(device.begin()),
                std::move_iterator(device.end()));
  return fields;
}

Fields fields_of(ModelSection& s) {
  return {
      make_field("config", s.config, Logged,
                 "a Hugging Face directory or its config.json, or its address "
                 "(s3://BUCKET/KEY)")
          .may_be_address()
          .must_be_given(),
      // A change is only logged, since a resume compares the resulting model field by
      // field.
      make_field("override", s.override_, Logged,
                 "fields of config.json to replace, as { num_hidden_layers = 4 }"),
  };
}

Fields fields_of(InitSection& s) {
  return {
      make_field(
          "weights", s.weights, Logged,
          "Hugging Face directory, checkpoint or run whose weights are taken at step 0, "
          "or its address")
          .may_be_address()
          .when_absent("random from run.seed"),
      make_field(
          "adapter", s.adapter, Logged,
          "directory with adapter_config.json and adapter_model.safetensors, whose "
          "values [adapter] begins with at step 0")
          .when_absent("first values from run.seed"),
      make_field("certificate", s.certificate, Free,
                 "compare the loaded model with its source before step 1, and the first "
                 "update after it; a difference stops the run"),
  };
}

Fields fields_of(BatchSection& s) {
  return {
      make_field("global_size", s.global_size, Logged, "sequences per optimizer step")
          .within(1, kMaxSequences)
          .must_be_given(),
      make_field("micro_size", s.micro_size, Logged,
                 "sequences per rank and forward pass; the accumulation is derived")
          .within(1, kMaxSequences),
  };
}

Fields fields_of(ParallelSection& s) {
  return {
      make_field("tp", s.tp, Logged, "tensor parallel ranks").within(1, kMaxRanks),
      make_field("pp", s.pp, Logged, "pipeline stages").within(1, kMaxRanks),
      make_field("cp", s.cp, Logged,
                 "context parallel ranks: each has two parts of every sequence")
          .within(1, kMaxRanks),
      make_field("ep", s.ep, Logged,
                 "expert parallel ranks: neighbours in dp x cp that have all experts of "
                 "a mixture of experts together; divides dp * cp and the experts")
          .within(1, kMaxRanks),
      make_field(
          "context", s.context, Logged,
          "how keys and values reach the ranks of cp: passed around a ring, or gathered"),
      make_field(
          "sequence", s.sequence, Logged,
          "sequence parallelism inside the tp group; it has no effect with tp = 1"),
      make_field("pipeline", s.pipeline, Logged, "order of forward and backward passes"),
      make_field("virtual_stages", s.virtual_stages, Logged,
                 "stages per pipeline rank; above 1 with pipeline = \"interleaved\"")
          .within(1, kMaxRanks),
      make_field("partition", s.partition, Logged,
                 "layers of each of the pp * virtual_stages stages; []: balanced by cost")
          .at_least(1),
      make_field("zero", s.zero, Logged,
                 "sharded over data parallel ranks: 0 nothing, 1 optimizer state, "
                 "2 + gradients, 3 + parameters")
          .within(0, 3),
      make_field("shard_group", s.shard_group, Logged,
                 "zero 1 to 3: ranks that share one copy of the sharded state: "
                 "\"world\", \"node\" or a number of ranks (shards inside a group, "
                 "replicas across groups)"),
      make_field(
          "auto", s.auto_, Free,
          "submit and launch choose the best layout for the machine and the ranks; "
          "what is given of tp, pp, cp, ep, pipeline, virtual_stages, zero, "
          "shard_group, batch.micro_size and memory.recompute stays"),
      make_field(
          "chosen", s.chosen, Free,
          "what auto has chosen, as it writes it; a start on as many ranks keeps it")
          .when_absent("auto has chosen nothing"),
  };
}

Fields fields_of(ExpertsSection& s) {
  return {
      make_field("balance", s.balance, Logged,
                 "the loss that balances experts; sequence: over each sequence; global: "
                 "by the step before; pooled: transformers' form, for one micro batch. "
                 "model: sequence where config.json has output_router_logits, else off"),
      make_field("balance_weight", s.balance_weight, Logged, "weight of that loss")
          .at_least(0)
          .when_absent("the model's router_aux_loss_coef, if that loss is on"),
      make_field("z_loss", s.z_loss, Logged,
                 "weight of the squared log-sum-exp of the router's logits; 0: off")
          .at_least(0),
      make_field("warn_below", s.warn_below, Free,
                 "warn where a layer uses less than this share of its experts: the "
                 "exponential of the entropy of their loads, over their number; 0: never")
          .within(0, 1),
  };
}

Fields fields_of(MemorySection& s) {
  return {
      make_field("recompute", s.recompute, Free,
                 "activations computed again in the backward pass; selective: attention "
                 "and the SwiGLU product"),
      make_field("recompute_layers", s.recompute_layers, Free,
                 "with recompute = \"full\": number of layers that are recomputed, "
                 "counted from the model's first layer")
          .at_least(0)
          .when_absent("all"),
      make_field("offload_activations", s.offload_activations, Free,
                 "with recompute = \"full\" on a device with memory of its own: the "
                 "inputs that layers keep are in host memory until the backward pass"),
      make_field("gathered_gb", s.gathered_gb, Free,
                 "zero 3: gigabytes (10^9 bytes) of weights that a rank may hold "
                 "gathered; a larger number saves gathers; 0: as little as possible")
          .at_least(0.0),
  };
}

Fields fields_of(PrecisionSection& s) {
  return {
      make_field("compute", s.compute, Logged, "dtype of matrix products and activations")
          .only_built({"\"fp32\"", "\"bf16\""}),
      make_field("master", s.master, Match,
                 "dtype of the optimizer's weights; bf16_sr: no second copy; the bf16 "
                 "weights, and moments in bf16, are rounded stochastically"),
      make_field("moments", s.moments, Match, "dtype of the optimizer's moments"),
      make_field("gradients", s.gradients, Logged, "dtype of gradient accumulation"),
      make_field("reduce", s.reduce, Logged, "dtype of gradient reduction over ranks"),
  };
}

Fields fields_of(ParameterGroup& s) {
  return {
      make_field(
          "match", s.match, Logged,
          "pattern of the parameters' names, or of their tensors' in Hugging Face's "
          "files (longhaul inspect --names); with * or ?, of the whole name, else "
          "any name that contains it"),
      make_field("lr_scale", s.lr_scale, Logged, "times the learning rate").at_least(0),
      make_field("weight_decay", s.weight_decay, Logged, "instead of the optimizer's")
          .at_least(0),
      make_field("frozen", s.frozen, Logged,
                 "no update; once a resume takes it out, the moments begin with zeros"),
  };
}

Fields fields_of(OptimizerSection& s) {
  return {
      make_field("kind", s.kind, Match,
                 "the optimizer; lamb: one rate for each tensor of the Hugging Face "
                 "model, by the norms of tensor and update"),
      make_field("lr", s.lr, Logged, "peak learning rate").above(0).must_be_given(),
      make_field("betas", s.betas, Logged,
                 "decay of the first and second moment; default with lamb: [0.9, 0.999]")
          .below(0, 1),
      make_field("eps", s.eps, Logged,
                 "added to the root of the second moment; default with lamb: 1e-6")
          .above(0),
      make_field(
          "weight_decay", s.weight_decay, Logged,
          "decoupled decay, times the learning rate; not applied to optimizer.no_decay; "
          "default with lamb: 0.01, and parameters without decay have no trust ratio")
          .at_least(0),
      make_field("convention", s.convention, Match,
                 "torch: decay first, eps outside the corrected root; hf: correction in "
                 "the step size, eps on the uncorrected root, decay last"),
      make_field("no_decay", s.no_decay, Logged,
                 "name patterns of parameters without weight decay; the default means a "
                 "model's norms and biases under any name; older source recipes use "
                 "[\"*bias\", \"*LayerNorm*\"]"),
      make_field("groups", s.groups, Logged,
                 "settings of parameters by name pattern; the first group that matches a "
                 "parameter counts"),
      make_field("clip", s.clip, Logged, "largest global gradient norm; 0: no clipping")
          .at_least(0),
      make_field("z_loss", s.z_loss, Logged,
                 "weight of the squared log-sum-exp of the logits; 0: off")
          .at_least(0),
  };
}

Fields fields_of(ScheduleSection& s) {
  return {
      make_field("kind", s.kind, Logged,
                 "shape of the learning rate; wsd: warm-up, stable, decay; smp: that of "
                 "SageMaker's examples, warm-up, plateau and decay to a floor"),
      make_field("warmup_steps", s.warmup_steps, Logged, "steps up to the peak")
          .within(0, kMaxSteps)
          .when_absent("warmup_fraction says, else 0"),
      make_field("warmup_fraction", s.warmup_fraction, Logged,
                 "warm-up as a share of the horizon, instead of warmup_steps")
          .below(0, 1)
          .when_absent("warmup_steps says"),
      make_field("warmup_start", s.warmup_start, Logged,
                 "zero: lr s / W, so step 1 has lr 0; nonzero: lr (s + 1) / (W + 1)")
          .when_absent(
              "zero for linear, smp and cosine with constant_steps; else nonzero"),
      make_field("min_lr", s.min_lr, Logged,
                 "learning rate at which the decay ends; smp: lowest learning rate")
          .at_least(0),
      make_field("horizon", s.horizon, Logged, "the step at which the decay ends")
          .within(1, kMaxSteps)
          .when_absent("the run's steps"),
      make_field("constant_steps", s.constant_steps, Logged,
                 "cosine: number of steps between the end of the decay and the horizon")
          .within(0, kMaxSteps),
      make_field("decay", s.decay, Logged,
                 "wsd: linear | cosine | sqrt; smp: cosine | linear | exponential | "
                 "plateau | constant")
          .when_absent("linear for wsd, cosine for smp"),
      make_field("decay_steps", s.decay_steps, Logged, "wsd: length of the decay")
          .within(1, kMaxSteps)
          .when_absent("a tenth of the horizon"),
      make_field("plateau_fraction", s.plateau_fraction, Logged,
                 "smp with decay = plateau: share of the horizon at the peak")
          .below(0, 1),
      make_field("continue", s.continue_, Logged,
                 "what a resume does where this section differs from the checkpoint's. "
                 "With keep, the checkpoint's schedule goes on. With rewarm, the rate "
                 "warms up from the checkpoint's rate to continue_fraction * lr, then "
                 "follows kind over the steps left. With decay, the rate goes from the "
                 "checkpoint's rate to min_lr at the horizon, as schedule.decay says")
          .when_absent("a resume with another schedule is refused"),
      make_field("continue_fraction", s.continue_fraction, Logged,
                 "continue = rewarm: the new peak as a share of optimizer.lr")
          .within(1e-6, 1.0),
  };
}

Fields fields_of(LogSection& s) {
  return {
      make_field("every", s.every, Free,
                 std::string("steps between lines of ") + run::kLogFile)
          .within(1, kMaxSteps),
      make_field(
          "window", s.window, Free,
          "number of steps of this start over which a line gives means, too; 1: no means")
          .within(1, 1e6),
      make_field("tensorboard", s.tensorboard, Free,
                 "write TensorBoard's event files, too"),
      make_field("tensorboard_dir", s.tensorboard_dir, Free,
                 "directory of TensorBoard's event files")
          .when_absent("run.dir/tensorboard"),
      make_field("results", s.results, Free,
                 std::string("longhaul | nxd | nxd-zero1 | bert: the form of ") +
                     run::kResultsFile + ", ours or that of a script of another system"),
      make_field(
          "prompts", s.prompts, Free,
          "texts that the model continues, greedily, for people to read; in a run on "
          "chats or pairs they are messages that it answers"),
      make_field("prompts_every", s.prompts_every, Free,
                 "steps between continuations of prompts, which also come at step 0 and "
                 "at the end; 0: only there")
          .within(0, kMaxSteps),
      make_field("prompt_tokens", s.prompt_tokens, Free,
                 "largest number of tokens by which a prompt is continued")
          .within(1, 4096),
      make_field("layer_norms_every", s.layer_norms_every, Free,
                 "steps between records of each layer's gradient norm, and of the loads "
                 "of its experts, which also come at the first and last step; 0: none")
          .within(0, kMaxSteps),
  };
}

Fields fields_of(ValidationSection& s) {
  return {
      make_field("every", s.every, Free,
                 "steps between validations, which also come at step 0 and at the end; "
                 "0: only there")
          .within(0, kMaxSteps),
      make_field("batches", s.batches, Free,
                 "batches of batch.global_size sequences per set; 0: the whole set")
          .within(0, kMaxSequences),
      make_field(
          "tasks", s.tasks, Free,
          "tasks of lm-eval that are measured with the validations: { name, path }. "
          "The path is a file of samples, as lm-eval --model dummy --log_samples "
          "writes it, or its address"),
  };
}

Fields fields_of(ResilienceSection& s) {
  return {
      make_field(
          "on_node_loss", s.on_node_loss, Free,
          "with spare, a spare node of the job takes the place of a lost node, and "
          "without a spare the job goes back to the queue. With wait, the job always "
          "goes back to the queue. With shrink, a spare takes the place, else the "
          "job goes on with fewer data-parallel ranks and the same batch"),
      make_field("max_restarts", s.max_restarts, Free,
                 "restarts of one job, by all of its supervisors (longhaul launch, "
                 "longhaul submit) and over requeues, before it gives up")
          .within(0, 1'000'000),
      make_field("hang_timeout_s", s.hang_timeout_s, Free,
                 "seconds without any progress after which a supervisor takes the run "
                 "for hung; 0: learned from the run, five times the longest pause in the "
                 "same phase and at least 10 s; starts have longer")
          .within(0, 1e6),
      make_field("health_command", s.health_command, Free,
                 "command that /bin/sh runs on each node before the start and after a "
                 "fault; an exit code other than 0 leaves the node out; \"\": none"),
      make_field("unhealthy_file", s.unhealthy_file, Free,
                 "a file on each node; a last line other than 0 marks the node unfit"),
      make_field(
          "peer_memory_every", s.peer_memory_every, Free,
          "steps between copies of each rank's state into its machine's memory and "
          "a neighbour's; 0: off")
          .within(0, kMaxSteps),
      make_field("node_boot_s", s.node_boot_s, Free,
                 "seconds that a start waits for a node that Slurm shows as powering up")
          .within(0, 86400),
      make_field("comm_timeout_s", s.comm_timeout_s, Free,
                 "seconds that a rank waits for the others before it ends with exit 75; "
                 "must be longer than any one checkpoint part or batch takes")
          .within(1, 1e6),
      make_field(
          "signal_timeout_s", s.signal_timeout_s, Free,
          "seconds that a rank waits for the others after SIGTERM, SIGINT or SIGUSR1, "
          "until all ranks have agreed to save; must be longer than a step takes")
          .within(1, 1e6),
      make_field("on_bad_step", s.on_bad_step, Logged,
                 "what follows where a batch has no target, or where loss or gradient "
                 "norm is not finite or a spike. With stop, the run ends with exit 1 "
                 "(78: no target). With skip, the run leaves this update out. With "
                 "rollback, the run goes back to an earlier checkpoint and leaves out "
                 "the batches of the last rollback_steps steps"),
      make_field("spike_sigmas", s.spike_sigmas, Logged,
                 "standard deviations above the mean of the last spike_window good steps "
                 "that make a loss or gradient norm a spike. Steps are judged once half "
                 "of the window is full; with 0, only values that are not finite are bad")
          .within(0, 1e6),
      make_field("spike_window", s.spike_window, Logged,
                 "number of good steps with which a step is compared")
          .within(4, 1e5),
      make_field("rollback_steps", s.rollback_steps, Logged,
                 "number of steps whose batches a rollback leaves out; it goes back to "
                 "the newest checkpoint before those steps")
          .within(1, kMaxSteps),
      make_field("max_bad_steps", s.max_bad_steps, Free,
                 "largest number of bad steps among the last spike_window steps; one "
                 "more ends the run with exit 1")
          .within(0, 1e5),
      make_field("checksum_every", s.checksum_every, Free,
                 "steps between bitwise comparisons of the state that several ranks hold "
                 "alike; also compared before each checkpoint; 0: off")
          .within(0, kMaxSteps),
  };
}

Fields fields_of(ProfileSection& s) {
  return {
      make_field("steps", s.steps, Free,
                 "steps whose timeline is written to run.dir/trace_step_N.json (Chrome's "
                 "trace format), with a table of where the time went in log and report")
          .at_least(1),
      make_field("every", s.every, Free,
                 "steps between such tables without a timeline; 0: none")
          .at_least(0),
  };
}

std::string problem_of(const ParameterGroup& item) {
  if (item.match.empty()) return ": needs match, a name pattern";
  if (!item.frozen || (item.lr_scale == 1.0 && !item.weight_decay)) return "";
  return ": frozen = true leaves no use for lr_scale or weight_decay; remove them";
}

namespace config {

std::vector<SectionFields> sections_of(RunConfig& c) {
  return {
      {"run", "what runs, for how long, on what", fields_of(c.run)},
      {"model", "the model's shape", fields_of(c.model)},
      {"init", "first weights", fields_of(c.init)},
      {"adapter", "low-rank parts beside frozen weights", fields_of(c.adapter)},
      {"data", "what the model learns from", fields_of(c.data)},
      {"batch", "sequences per step", fields_of(c.batch)},
      {"parallel", "layout; dp is derived: world = pp * dp * cp * tp",
       fields_of(c.parallel)},
      {"experts", "mixtures of experts: balancing the router", fields_of(c.experts)},
      {"preference", "training on pairs of a chosen and a rejected answer",
       fields_of(c.preference)},
      {"memory", "less memory for more time", fields_of(c.memory)},
      {"precision", "number formats", fields_of(c.precision)},
      {"optimizer", "the update", fields_of(c.optimizer)},
      {"schedule", "the learning rate over steps", fields_of(c.schedule)},
      {"checkpoint", "saving and continuing", fields_of(c.checkpoint)},
      {"log", "what is written while it runs", fields_of(c.log)},
      {"validation", "loss on data.validation, and tasks", fields_of(c.validation)},
      {"resilience", "what happens when machines fail", fields_of(c.resilience)},
      {"profile", "where the time goes", fields_of(c.profile)},
      {"debug", "looking inside a step", fields_of(c.debug)},
  };
}

std::vector<std::string> all_names(const std::vector<SectionFields>& sections) {
  std::vector<std::string> out;
  for (const SectionFields& section : sections) {
    for (const Field& field : section.fields) {
      out.push_back(section.name + "." + field.key);
    }
  }
  return out;
}

}  // namespace config
}  // namespace longhaul
