#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/config/model_override.h"

namespace longhaul {

// One struct per section of the configuration file; the member names are the keys.
// fields.cpp says for each key what it means and what a resume may do with it, and
// `longhaul config` prints that. Names that C++ uses have a trailing underscore. An empty
// optional or path means "not given".

/// What a run does if it misses what run.expect or run.golden demands.
enum class MissPolicy { Stop, Warn };

/// The throughput that a run is to have at least.
struct ExpectedRate {
  double tokens_per_s = 0.0;
  double tolerance = 0.05;  ///< share of it that may be missing
  int64_t steps = 50;       ///< steps whose mean is judged
  MissPolicy on_miss = MissPolicy::Stop;
  bool operator==(const ExpectedRate&) const = default;
};

struct GoldenLoss {
  int64_t step = 0;
  double loss = 0.0;
  bool operator==(const GoldenLoss&) const = default;
};

/// The losses that a run is to have at some of its steps. Either `file` is set or
/// `losses`.
struct GoldenLosses {
  fs::path file;
  std::vector<GoldenLoss> losses;
  double tolerance = 0.05;  ///< share of the golden loss
  MissPolicy on_miss = MissPolicy::Stop;
  bool operator==(const GoldenLosses&) const = default;
};

/// A time that a setting names, in seconds since 1970.
struct UtcTime {
  int64_t seconds = 0;
  bool operator==(const UtcTime&) const = default;
};

struct RunSection {
  fs::path dir;
  std::optional<int64_t> steps;  ///< exactly one of steps and epochs is given
  std::optional<double> epochs;
  std::optional<int64_t> stop_after;
  std::optional<UtcTime> until;               ///< the date by which the run ends
  std::optional<double> budget;               ///< the money that the run may cost
  std::optional<double> price_per_node_hour;  ///< in the unit of budget
  int64_t seed = 1234;
  /// Returns whether measured speed decides where the decay begins and the run ends.
  bool ends_by_speed() const { return until || budget; }
  /// "auto" | "cpu" | "cuda" | "neuron" | "plugin"
  std::string device = "auto";
  fs::path device_plugin;                 ///< a library, with "auto" or "plugin"
  std::string neuron_python = "python3";  ///< the interpreter, with "auto" or "neuron"
  /// What an operation does that the device has not: "error" | "warn".
  std::string device_fallback = "error";
  /// Whether kernels are compiled that the cache lacks: "use" | "only".
  std::string compile_cache = "use";
  fs::path compile_cache_dir;   ///< of a device that compiles shapes; empty: the user's
  fs::path compile_cache_from;  ///< kernels that are copied to compile_cache_dir
  fs::path hardware;            ///< a HardwareProfile; empty: measured at start
  std::optional<bool> deterministic;  ///< empty: true on a CPU, false elsewhere
  int64_t threads = 0;                ///< 0: OMP_NUM_THREADS or a share of the CPUs
  bool fused = true;
  std::optional<ExpectedRate> expect;
  std::optional<GoldenLosses> golden;
  /// Names of variables, with * for any text, that every rank gets, too.
  std::vector<std::string> pass_environment;
};

struct ModelSection {
  fs::path config;
  std::vector<ModelOverride> override_;
};

/// Names of modules ("model.layers.0.self_attn.q_proj"). An entry with * or ? means the
/// modules whose whole name it matches. Another entry means the modules of that name, and
/// those whose name ends with a dot and the entry.
struct ModulePatterns {
  std::vector<std::string> entries;
  bool operator==(const ModulePatterns&) const = default;
};

/// The entry of adapter.modules that means all linear layers of the blocks.
inline constexpr const char* kAllLinear = "all-linear";

enum class AdapterKind { Lora, Dora };

/// Trains a low-rank part beside weights that stay as they are (families::LowRank).
struct AdapterSection {
  std::optional<AdapterKind> kind;  ///< empty: all weights are trained
  std::optional<int64_t> rank;
  std::optional<double> alpha;
  bool rslora = false;
  double dropout = 0.0;
  ModulePatterns modules{{kAllLinear}};
  ModulePatterns save;  ///< modules that are trained whole
  /// Returns alpha / rank, or alpha over the root of the rank with rslora. Both are
  /// given.
  double scale() const;
};

struct InitSection {
  fs::path weights;  ///< empty: random from run.seed
  fs::path adapter;  ///< a directory in the format of PEFT; empty: first values
  bool certificate = true;
};

/// Files or directories that are read as a single source, in this order. A name with
/// wildcards (* ? [ ]) stands for all matching paths, which are sorted.
struct DataPaths {
  std::vector<fs::path> entries;
  bool empty() const { return entries.empty(); }
  /// Returns the entries with commas between them, for messages.
  std::string text() const;
  bool operator==(const DataPaths&) const = default;
};

/// A source of data.train. Either `path` is set or `synthetic`, a number of sequences of
/// random tokens.
struct TrainSource {
  DataPaths path;
  int64_t synthetic = 0;
  double weight = 1.0;  ///< share of tokens, relative to the other sources' weights
  std::optional<double> max_epochs;  ///< the most passes over the source
  std::string field = "input_ids";   ///< the field that holds the ids in files of ids
  bool operator==(const TrainSource&) const = default;
};

/// The weights of data.train's sources, in their order, from a step on.
struct WeightsFrom {
  int64_t step = 0;
  std::vector<double> weights;
  bool operator==(const WeightsFrom&) const = default;
};

struct ValidationSource {
  std::string name;
  DataPaths path;
  std::string field = "input_ids";  ///< see TrainSource
  /// Nats above the loss of the run's first validation of the set; empty: no bound.
  std::optional<double> stop_above = {};
  bool operator==(const ValidationSource&) const = default;
};

/// How the documents of token stores become rows of data.seq_len positions.
enum class PackKind {
  Stream,  ///< one after another, cut wherever a row ends
  Whole    ///< whole, as many as fit into a row
};

/// What becomes of a document that is longer than a row, with PackKind::Whole.
enum class TooLong { Drop, Cut };

struct DataSection {
  int64_t seq_len = 0;
  bool shuffle = true;
  PackKind pack = PackKind::Stream;
  TooLong too_long = TooLong::Drop;
  bool document_mask = false;  ///< true with PackKind::Whole
  bool verify = true;
  std::vector<TrainSource> train;
  std::vector<WeightsFrom> changes;  ///< ascending in step
  fs::path cache;                    ///< empty: run.dir/data; see data_cache_dir()
  double cache_gb = 0.0;             ///< of copies of objects: 10^9 bytes; 0: no limit
  std::vector<ValidationSource> validation;
};

struct BatchSection {
  int64_t global_size = 0;  ///< sequences per optimizer step
  int64_t micro_size = 1;   ///< sequences per rank and forward pass
};

enum class PipelineKind { GPipe, OneFOneB, Interleaved, ZeroBubbleH1 };

/// How keys and values reach the queries of other ranks. In a ring they come part by
/// part, while the parts that came before are used. With Gather they come all at once.
enum class ContextKind { Ring, Gather };

struct ShardGroup {
  enum class Kind { World, Node, Ranks };
  Kind kind = Kind::World;
  int64_t ranks = 0;  ///< Ranks only
  bool operator==(const ShardGroup&) const = default;
};

/// The layout that parallel.auto has chosen. The values stand in their own settings.
struct ChosenLayout {
  int64_t ranks = 0;                  ///< for which it was chosen
  std::string hardware;               ///< the machine: a name, or the file of a profile
  double step_s = 0.0;                ///< predicted seconds of a step
  std::vector<std::string> settings;  ///< "parallel.tp" ...: those that it has chosen
  bool operator==(const ChosenLayout&) const = default;
};

struct ParallelSection {
  int64_t tp = 1;
  int64_t pp = 1;
  int64_t cp = 1;
  int64_t ep = 1;        ///< ranks of dp x cp that have all experts together
  bool sequence = true;  ///< has an effect with tp > 1 only
  ContextKind context = ContextKind::Ring;
  PipelineKind pipeline = PipelineKind::OneFOneB;
  int64_t virtual_stages = 1;
  std::vector<int64_t> partition;  ///< layers per stage; empty: balanced by cost
  int64_t zero = 1;                ///< 0 .. 3
  ShardGroup shard_group;
  bool auto_ = false;
  std::optional<ChosenLayout> chosen;
  /// Returns whether a layout has to be chosen before anything is known of ranks.
  bool undecided() const { return auto_ && !chosen; }
};

/// How a term of the loss balances the loads of a model's E experts. The term is
/// E * sum over e of f_e p_e, where f_e is the share of tokens that are sent to expert e,
/// and p_e is the router's mean probability of e.
enum class BalanceKind {
  Model,     ///< Sequence where config.json has output_router_logits, else Off
  Off,       ///< the term is measured and has no gradient
  Sequence,  ///< f and p of each layer and sequence
  Global,    ///< f of each layer over the whole batch of the step before
  Pooled,  ///< f and p over all layers and tokens of a micro batch, as transformers does
};

struct ExpertsSection {
  BalanceKind balance = BalanceKind::Model;
  std::optional<double> balance_weight;  ///< empty: the model's router_aux_loss_coef
  double z_loss = 0.0;      ///< weight of the mean of (log-sum-exp of router logits)^2
  double warn_below = 0.4;  ///< share of a layer's experts in effective use
};

/// How the loss of a pair follows from the sums of log-probabilities of its two sides
/// (nn/pair_loss.h).
enum class PreferenceLoss {
  Sigmoid,  ///< DPO
  Ipo,
  Hinge,
  Robust,
  ApoZero,
  SigmoidNorm,
  Simpo,
  Orpo,
};

/// Trains on pairs of a chosen and a rejected answer. Names and defaults are those of
/// TRL's DPOConfig, CPOConfig (simpo) and ORPOConfig.
struct PreferenceSection {
  std::optional<PreferenceLoss> loss;  ///< empty: the run predicts next tokens
  double beta = 0.1;
  double label_smoothing = 0.0;  ///< Robust and Simpo: share of pairs that are exchanged
  double simpo_gamma = 0.5;      ///< Simpo: the margin that the chosen side should have
  /// Returns whether the loss compares the model with the run's first weights.
  bool has_reference() const {
    return loss && *loss != PreferenceLoss::Simpo && *loss != PreferenceLoss::Orpo;
  }
};

enum class RecomputeKind { None, Selective, Full };

struct MemorySection {
  RecomputeKind recompute = RecomputeKind::None;
  std::optional<int64_t> recompute_layers;  ///< Full only; empty: all
  bool offload_activations = false;
  double gathered_gb = 0.0;  ///< ZeRO 3: 10^9 bytes; 0: as few as a step needs
};

enum class ComputeType { Fp32, Bf16, Fp8 };
enum class MasterType { Fp32, Bf16Sr };
enum class StateType { Fp32, Bf16 };

struct PrecisionSection {
  ComputeType compute = ComputeType::Bf16;
  MasterType master = MasterType::Fp32;
  StateType moments = StateType::Fp32;
  StateType gradients = StateType::Fp32;
  StateType reduce = StateType::Fp32;
};

enum class OptimizerKind { AdamW, Lamb };

/// The formula of AdamW. Torch: p -= lr * wd * p, then p -= lr / (1 - b1^t) * m / (sqrt(v
/// / (1 - b2^t)) + eps). Hf: p -= lr * sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + eps),
/// then p -= lr * wd * p.
enum class AdamConvention { Torch, Hf };

/// Settings of the parameters whose name matches `match`. The first matching group
/// counts.
struct ParameterGroup {
  std::string match;  ///< pattern with * and ?; without these, a part of the name
  double lr_scale = 1.0;
  std::optional<double> weight_decay;  ///< empty: the optimizer's, no_decay included
  bool frozen = false;
  bool operator==(const ParameterGroup&) const = default;
};

struct OptimizerSection {
  OptimizerKind kind = OptimizerKind::AdamW;
  double lr = 0.0;
  std::array<double, 2> betas{0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  AdamConvention convention = AdamConvention::Torch;
  std::vector<std::string> no_decay{"*bias", "*norm*"};
  std::vector<ParameterGroup> groups;
  double clip = 1.0;    ///< 0: no clipping
  double z_loss = 0.0;  ///< weight of the mean of (log-sum-exp of the logits)^2; 0: off
};

enum class ScheduleKind { Cosine, Linear, Constant, Wsd, Smp };

/// The rate at step s of a warm-up of W steps. Zero: lr * s / W. NonZero:
/// lr * (s + 1) / (W + 1).
enum class WarmupStart { Zero, NonZero };

/// The form of a decay. Sqrt (1 - sqrt of the progress) belongs to wsd; Exponential,
/// Plateau and Constant belong to smp.
enum class DecayForm { Cosine, Linear, Sqrt, Exponential, Plateau, Constant };

/// What a start does with the schedule of the checkpoint that it resumes from: continue
/// the schedule, warm up again, or decay from the current rate.
enum class ContinueKind { Keep, Rewarm, Decay };

/// The schedule of the learning rate. Scheduler steps count from 0: optimizer step n
/// (from 1) uses scheduler step s = n - 1. The formulas use these lengths:
///
/// - T is the horizon, else the run's steps.
/// - W is warmup_steps, else warmup_fraction * T, else 0. A fraction of T stays
///   fractional for smp and is rounded to the nearest step for the other kinds.
/// - C is constant_steps, and D is wsd_decay_length().
///
/// The rates of each kind are:
///
/// - cosine: warm-up; min + (lr - min) (1 + cos(pi (s - W) / (T - W - C))) / 2; then min.
/// - linear: warm-up; min + (lr - min) (T - s) / (T - W); then min.
/// - constant: warm-up; lr.
/// - wsd: warm-up; lr; the last D steps before T go to min as `decay` says.
/// - smp, the form of the SageMaker model-parallel examples: for s <= W the rate is
///   lr min(s, T - W) / W. Then `decay` gives a form below, with n = min(s, T - W) - W.
///   After the warm-up the rate is at least min_lr.
///
/// The decays of smp are:
///
/// - linear: lr (T - n) / T.
/// - cosine: lr (cos(pi n / T) + 1) / 2.
/// - exponential: lr e^(-0.693 n / T).
/// - plateau: lr until P = W + plateau_fraction T, and then lr (T - s) / (T - P).
/// - constant: lr.
struct ScheduleSection {
  ScheduleKind kind = ScheduleKind::Cosine;
  std::optional<int64_t> warmup_steps;
  std::optional<double> warmup_fraction;
  /// Loading sets it if there is a warm-up: NonZero for wsd, constant, and cosine with
  /// constant_steps = 0; Zero for linear, smp, and cosine with constant_steps > 0.
  std::optional<WarmupStart> warmup_start;
  double min_lr = 0.0;
  std::optional<int64_t> horizon;  ///< steps; empty: the run's steps
  int64_t constant_steps = 0;      ///< cosine only: the last C steps stay at min_lr
  /// Loading sets an absent form: Cosine for smp, Linear for wsd and for `continue_`
  /// Decay.
  std::optional<DecayForm> decay;
  std::optional<int64_t> decay_steps;  ///< wsd only; see wsd_decay_length()
  double plateau_fraction = 0.0;       ///< smp with decay = plateau only
  /// How a resume continues after s0 steps. r0 is the rate that the next step would have
  /// had, k counts the steps of the continuation from 1, and T counts from the run's
  /// first step:
  ///
  /// - keep: the checkpoint's schedule, whatever this section says.
  /// - rewarm: for k <= W the rate is r0 + (F lr - r0) k / (W + 1). Then comes `kind`
  ///   without a warm-up over the remaining T - s0 - W steps, with F lr in place of lr.
  /// - decay: from r0 at k = 1 to min at T as `decay` says; then min.
  std::optional<ContinueKind> continue_;
  double continue_fraction = 1.0;  ///< F
};

/// Returns W for a horizon of T steps. W is a whole number except for smp with
/// warmup_fraction.
double warmup_length(const ScheduleSection& schedule, int64_t horizon);

/// Returns D of kind wsd: decay_steps, else a tenth of the horizon, at least 1.
int64_t wsd_decay_length(const ScheduleSection& schedule, int64_t horizon);

/// The checkpoint that a run continues from.
struct ResumeFrom {
  enum class Kind { Latest, Never, Step, Path };
  Kind kind = Kind::Latest;
  int64_t step = 0;  ///< Step only
  fs::path path;     ///< Path only: a checkpoint or a run of its own
  bool operator==(const ResumeFrom&) const = default;
};

struct CheckpointSection {
  int64_t every = 500;         ///< 0: only at the end
  double every_minutes = 0.0;  ///< minutes between further saves; 0: none
  int64_t keep = 2;            ///< 0: all
  int64_t milestone_every =
      0;  ///< every so many steps a checkpoint is kept forever; 0: none
  bool async_ = true;
  bool read_back = true;
  ResumeFrom resume;
  fs::path dir;  ///< empty: run.dir/checkpoints; see checkpoint_dir()
  /// Address in an object store to which every checkpoint is copied ("s3://bucket/run").
  std::optional<std::string> mirror;
  std::optional<int64_t> mirror_keep;  ///< `keep` of the mirror; absent: the same number
};

/// The form of results.json: ours, or that of one of the source systems' scripts.
enum class ResultsForm { Longhaul, Nxd, NxdZero1, Bert };

struct LogSection {
  int64_t every = 1;
  int64_t window = 10;  ///< steps of the means in a line; 1: no means
  bool tensorboard = true;
  fs::path tensorboard_dir;  ///< empty: run.dir/tensorboard
  ResultsForm results = ResultsForm::Longhaul;
  std::vector<std::string> prompts;  ///< texts that the model continues
  int64_t prompts_every = 500;       ///< 0: only at step 0 and at the end
  int64_t prompt_tokens = 32;        ///< most tokens of a continuation
  int64_t layer_norms_every = 100;   ///< 0: never
};

/// A task of lm-eval.
struct TaskSource {
  std::string name;
  fs::path path;  ///< a file of samples (data/tasks/task_file.h)
  bool operator==(const TaskSource&) const = default;
};

struct ValidationSection {
  int64_t every = 200;   ///< 0: only at step 0 and at the end
  int64_t batches = 10;  ///< batches of batch.global_size per set; 0: the whole set
  std::vector<TaskSource> tasks;
};

enum class NodeLossPolicy { Spare, Wait, Shrink };

/// What follows a step whose loss or gradient norm is not finite or a spike.
enum class BadStepPolicy { Stop, Skip, Rollback };

struct ResilienceSection {
  NodeLossPolicy on_node_loss = NodeLossPolicy::Spare;
  int64_t max_restarts = 100;
  double hang_timeout_s = 0.0;  ///< 0: learned
  std::string health_command;
  /// The default is the file by which SageMaker HyperPod learns that a node is unhealthy.
  fs::path unhealthy_file = "/var/run/sagemaker_healthcheck_status";
  int64_t peer_memory_every = 0;
  double node_boot_s = 1800.0;  ///< for a node that Slurm shows as powering up
  double comm_timeout_s = 600.0;
  double signal_timeout_s = 60.0;
  BadStepPolicy on_bad_step = BadStepPolicy::Stop;
  double spike_sigmas = 0.0;     ///< 0: only values that are not finite are bad
  int64_t spike_window = 128;    ///< good steps for the mean and the deviation
  int64_t rollback_steps = 100;  ///< Rollback: steps to go back at least and to leave out
  int64_t max_bad_steps = 10;    ///< among the last spike_window steps
  int64_t checksum_every = 100;  ///< steps between comparisons of replicas; 0: off
};

struct ProfileSection {
  std::vector<int64_t> steps;
  int64_t every = 0;  ///< 0: only `steps`
};

/// The tensors of some steps that a run writes for a comparison with another layout.
struct CaptureSettings {
  std::vector<int64_t> steps;
  std::vector<int64_t> ranks;        ///< empty: all
  std::vector<std::string> tensors;  ///< name patterns; empty: all
  bool operator==(const CaptureSettings&) const = default;
};

/// A kind of fault. BitFlip changes a weight in memory. The other kinds change the loss
/// or the gradient that a rank computes from the batch of a step.
enum class FaultKind { NonFiniteLoss, NonFiniteGradient, Spike, BitFlip };

/// A fault that is made on purpose, to see what the run does about it.
struct DebugFault {
  int64_t step = 0;
  FaultKind kind = FaultKind::NonFiniteLoss;
  int64_t rank = 0;
  int64_t attempt = 0;  ///< the only start of the run with the fault; 0: all starts
  std::string tensor;   ///< BitFlip; empty: the first on the rank
  bool operator==(const DebugFault&) const = default;
};

/// The phases in which a rank can lose time on purpose.
inline constexpr std::array<std::string_view, 11> kDelayPhases = {
    "start",     "load",   "batch",      "gradients",        "update",
    "rollback",  "paused", "validation", "validation batch", "sample text",
    "checkpoint"};

/// Time that a rank loses on purpose whenever it enters a phase.
struct DebugDelay {
  std::string phase;
  double seconds = 0.0;
  std::optional<int64_t> rank;  ///< empty: all
  bool operator==(const DebugDelay&) const = default;
};

struct DebugSection {
  std::optional<CaptureSettings> capture;
  std::vector<DebugFault> faults;
  std::vector<DebugDelay> delays;
};

/// One run, resolved and checked. The struct is plain data and can be copied.
struct RunConfig {
  RunSection run;
  ModelSection model;
  InitSection init;
  AdapterSection adapter;
  DataSection data;
  BatchSection batch;
  ParallelSection parallel;
  ExpertsSection experts;
  PreferenceSection preference;
  MemorySection memory;
  PrecisionSection precision;
  OptimizerSection optimizer;
  ScheduleSection schedule;
  CheckpointSection checkpoint;
  LogSection log;
  ValidationSection validation;
  ResilienceSection resilience;
  ProfileSection profile;
  DebugSection debug;

  /// Where a key was set ("batch.global_size" -> "run.toml:12:15"), for messages only.
  /// Neither the hash of the settings nor a comparison sees these places.
  std::map<std::string, std::string> origins;
};

/// Returns whether a pattern of optimizer.groups or optimizer.no_decay means this
/// parameter. A pattern with * or ? must match the whole name; another one must be a part
/// of the name.
bool matches_parameter(std::string_view pattern, std::string_view name);

/// Returns checkpoint.dir, or run.dir/checkpoints.
fs::path checkpoint_dir(const RunConfig& config);

/// Returns data.cache, or run.dir/data: where packed data is kept.
fs::path data_cache_dir(const RunConfig& config);

/// Returns what a run reads by address: the model's config, first weights and data, each
/// once, in this order.
std::vector<fs::path> addresses_of(const RunConfig& config);

}  // namespace longhaul
