#include "apps/new/new_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::apps {
namespace {

/// The longest sequence that is chosen. Attention in a longer one costs more than the
/// model learns from it, unless there is a special reason.
constexpr int64_t kLongest = 8192;
constexpr int64_t kShortest = 128;
/// To save memory, sequences are made no shorter than this.
constexpr int64_t kShortestForMemory = 512;
constexpr int64_t kFewestSequences = 64;
constexpr int64_t kFewestSteps = 100;
/// Tokens of a step and of a micro batch.
constexpr int64_t kStepTokens = 524'288;
constexpr int64_t kStepTokensOnCpu = 16'384;
/// Tokens of a step on chats: 128 conversations of about a thousand tokens, as Tulu 3 and
/// Zephyr had.
constexpr int64_t kStepTokensOfChats = 131'072;
/// The rank of an adapter, and alpha as a multiple of it, as in QLoRA's code and PEFT's
/// examples.
constexpr int64_t kAdapterRank = 16;
constexpr double kAlphaOfRank = 2.0;
/// Passes over chats, as Alpaca had, and over pairs, as Tulu 3 and Zephyr had.
constexpr double kPassesOverChats = 3.0;
constexpr double kPassesOverPairs = 1.0;
constexpr int64_t kMicroTokens = 16'384;
constexpr int64_t kMicroTokensOnCpu = 4'096;
/// A checkpoint holds a parameter as its value and two moments, each in fp32.
constexpr int64_t kCheckpointBytes = 12;
/// The part of the memory that the estimate may fill: the estimate leaves out what the
/// program and its libraries take.
constexpr double kFill = 0.8;

int64_t ceil_power(int64_t number) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(number)));
}

int64_t floor_power(int64_t number) {
  return static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(number, 1))));
}

/// Rounds the weight of a source of data to three digits. A person can read such a
/// number, and it is near enough for a source with any share.
double three_digits(double number) { return std::stod(fmt::format("{:.3g}", number)); }

class Chooser {
 public:
  explicit Chooser(const NewRunFacts& facts) : facts_(facts), config_(run_.config) {}

  NewRun choose() {
    name_inputs();
    config_.run.dir = facts_.run_dir;
    config_.run.device = facts_.machine.device;
    if (config_.run.device == "neuron") {
      config_.run.neuron_python = facts_.machine.neuron_python;
    }
    if (facts_.machine.is_cpu()) config_.run.threads = facts_.machine.threads;
    choose_tuning();
    choose_precision();
    facts_.is_on_chats() ? choose_rows() : choose_length();
    fit_memory();
    choose_batch();
    choose_rate();
    choose_times();
    return std::move(run_);
  }

 private:
  void because(const std::string& key, std::string text) {
    run_.why[key] = std::move(text);
  }

  void name_inputs() {
    config_.model.config = facts_.model_path;
    if (facts_.has_weights) config_.init.weights = facts_.model_path;
    double all = 0.0;
    for (const DataFacts& data : facts_.train) all += static_cast<double>(data.tokens);
    for (const DataFacts& data : facts_.train) {
      TrainSource source;
      source.path.entries = {data.path};
      if (data.has_fields) source.field = facts_.field;
      if (facts_.train.size() > 1) {
        source.weight =
            three_digits(static_cast<double>(data.tokens) / std::max(all, 1.0));
      }
      config_.data.train.push_back(std::move(source));
    }
    add_validation();
  }

  void add_validation() {
    for (const DataFacts& data : facts_.train) {
      for (const std::string& path : data.held_out) {
        ValidationSource source;
        source.name = name_of_validation(path);
        source.path.entries = {path};
        config_.data.validation.push_back(std::move(source));
      }
    }
  }

  /// Returns a name for a set of validation. It has only characters that a name may have,
  /// and no other set has it.
  std::string name_of_validation(const fs::path& path) const {
    const std::string plain = plain_characters(path.filename().string());
    std::string name = plain;
    const auto& others = config_.data.validation;
    for (int number = 2; std::ranges::count(others, name, &ValidationSource::name) > 0;
         ++number) {
      name = fmt::format("{}-{}", plain, number);
    }
    return name;
  }

  /// Chooses what of the model is trained, and by which loss.
  void choose_tuning() {
    if (facts_.lora) {
      config_.adapter.kind = AdapterKind::Lora;
      config_.adapter.rank = kAdapterRank;
      config_.adapter.alpha = kAlphaOfRank * static_cast<double>(kAdapterRank);
      because("adapter.rank", "more where much is new to the model");
      because("adapter.alpha", "twice the rank, as is usual");
    }
    if (facts_.is_on_pairs()) {
      config_.preference.loss = PreferenceLoss::Sigmoid;
      because("preference.loss", "DPO; `longhaul docs preferences` has the others");
      because("preference.beta", "less lets the model go farther from its beginning");
    }
  }

  void choose_precision() {
    const MachineFacts& machine = facts_.machine;
    const bool bf16 = machine.bf16_rate >= machine.fp32_rate;
    config_.precision.compute = bf16 ? ComputeType::Bf16 : ComputeType::Fp32;
    because("precision.compute",
            fmt::format("products here: bf16 {:.3g} TFLOP/s, fp32 {:.3g} TFLOP/s",
                        machine.bf16_rate * 1e-12, machine.fp32_rate * 1e-12));
  }

  void choose_length() {
    int64_t fixed = 0;
    const DataFacts* first = nullptr;
    for (const DataFacts& data : facts_.train) {
      if (data.fixed_length == 0) continue;
      if (first != nullptr && data.fixed_length != fixed) {
        fail_config("new",
                    "{} has sequences of {} tokens and {} of {}; a run has one length",
                    first->path, fixed, data.path, data.fixed_length);
      }
      fixed = data.fixed_length;
      first = &data;
    }
    const int64_t positions = facts_.model.network.max_positions;
    fixed_ = fixed > 0;
    if (fixed_) {
      config_.data.seq_len = fixed;
      because("data.seq_len",
              fmt::format("the sequences of {} have this length", first->path));
      return;
    }
    int64_t length = std::min(positions, kLongest);
    std::string why = fmt::format("the model has {} positions", grouped(positions));
    const int64_t wanted = kFewestSequences * facts_.machine.ranks;
    while (length / 2 >= kShortest && sequences_of(facts_.train, length) < wanted) {
      length /= 2;
      why = fmt::format("the model has {} positions; the data is short",
                        grouped(positions));
    }
    config_.data.seq_len = length;
    because("data.seq_len", why);
  }

  /// Chooses rows of whole chats, into which the longest chat fits, if the model has so
  /// many positions.
  void choose_rows() {
    const int64_t most = std::min(facts_.model.network.max_positions, kLongest);
    int64_t longest = 1;
    for (const DataFacts& data : facts_.train) longest = std::max(longest, data.longest);
    const int64_t enough = std::min(most, std::max(kShortest, ceil_power(longest)));
    int64_t length = most;
    const int64_t wanted = kFewestSequences * facts_.machine.ranks;
    while (length / 2 >= enough && sequences_of(facts_.train, length) < wanted) {
      length /= 2;
    }
    shortest_ = std::max(enough, kShortestForMemory);
    config_.data.seq_len = length;
    because("data.seq_len",
            longest <= length
                ? fmt::format("the longest seen has {} tokens", grouped(longest))
                : fmt::format("the longest seen has {} tokens: what is longer than a row "
                              "is left out and counted; too_long = \"cut\" cuts it",
                              grouped(longest)));
    config_.data.pack = PackKind::Whole;
    config_.data.document_mask = true;  // pack = "whole" implies it
    because("data.pack", "a row holds whole conversations, of which none sees another");
  }

  /// Returns about how many bytes a rank takes with the settings chosen so far.
  int64_t bytes_now() const {
    RunConfig asked = config_;
    asked.batch.micro_size = std::max<int64_t>(asked.batch.micro_size, 1);
    asked.batch.global_size = asked.batch.micro_size * facts_.machine.ranks;
    return facts_.bytes_of(asked);
  }
  int64_t room() const {
    return static_cast<int64_t>(kFill * static_cast<double>(facts_.machine.memory_bytes));
  }
  bool fits() const { return facts_.machine.memory_bytes == 0 || bytes_now() <= room(); }

  /// Tries savings of memory, from the cheapest to the most expensive. Returns false if
  /// the run does not even fit with all of them.
  bool fits_with_savings() {
    for (const int64_t zero : {int64_t{1}, int64_t{3}}) {
      if (zero > 1 && facts_.machine.ranks == 1) continue;
      config_.parallel.zero = zero;
      for (const RecomputeKind kind :
           {RecomputeKind::None, RecomputeKind::Selective, RecomputeKind::Full}) {
        config_.memory.recompute = kind;
        if (fits()) return true;
      }
    }
    return false;
  }

  /// Chooses what saves memory, with micro batches of one sequence. If the run does not
  /// fit this machine even with all savings, the run file is meant for another machine:
  /// it then has no savings, and a warning says how much memory is needed.
  void fit_memory() {
    config_.batch.micro_size = 1;
    const NewRun unsaved = run_;
    while (!fits_with_savings()) {
      const bool shortens = !fixed_ && config_.data.seq_len / 2 >= shortest_;
      if (!shortens) {
        run_ = unsaved;
        run_.warning = fmt::format(
            "this model needs about {} on each rank, and {} of memory are free here; "
            "longhaul config FILE --ranks N shows what more ranks need",
            human_bytes(bytes_now()), human_bytes(facts_.machine.memory_bytes));
        return;
      }
      config_.data.seq_len /= 2;
      because("data.seq_len", "as long as fits into the memory");
    }
    if (config_.memory.recompute != RecomputeKind::None) {
      because("memory.recompute", "activations would not fit into the memory otherwise");
    }
    if (config_.parallel.zero == 3) {
      because("parallel.zero",
              "the model's states do not fit into the memory of each rank");
    }
  }

  void choose_batch() {
    const MachineFacts& machine = facts_.machine;
    const int64_t length = config_.data.seq_len;
    const auto sequences = static_cast<int64_t>(
        passes() * static_cast<double>(sequences_of(facts_.train, length)));
    const int64_t tokens = machine.is_cpu()       ? kStepTokensOnCpu
                           : facts_.is_on_chats() ? kStepTokensOfChats
                                                  : kStepTokens;
    const int64_t size = std::min(tokens / length, sequences / kFewestSteps);
    const int64_t of_rank = floor_power(size / machine.ranks);
    config_.batch.global_size = of_rank * machine.ranks;
    const int64_t most = machine.is_cpu() ? kMicroTokensOnCpu : kMicroTokens;
    int64_t micro = 1;
    while (2 * micro <= of_rank && 2 * micro * length <= most && run_.warning.empty()) {
      config_.batch.micro_size = 2 * micro;
      if (!fits()) break;
      micro *= 2;
    }
    config_.batch.micro_size = micro;
    because(
        "batch.global_size",
        fmt::format("{} tokens a step: {}", grouped(config_.batch.global_size * length),
                    sequences / kFewestSteps < tokens / length
                        ? facts_.is_on_chats()
                              ? "more would leave too few steps in these epochs"
                              : "more would leave too few steps in a pass over the data"
                    : machine.is_cpu() ? "as many as a CPU does in reasonable time"
                    : facts_.is_on_chats()
                        ? "about 128 conversations, as published recipes have"
                        : "about what large models are trained with"));
    because("batch.micro_size",
            machine.memory_bytes == 0
                ? "raise it while the memory allows it"
                : fmt::format("about {} of the {} of memory that {}",
                              human_bytes(bytes_now()), human_bytes(machine.memory_bytes),
                              machine.is_cpu() ? "are free now" : "each device has"));
  }

  /// Returns how often the run reads the training data.
  double passes() const {
    if (!facts_.is_on_chats()) return 1.0;
    return facts_.is_on_pairs() ? kPassesOverPairs : kPassesOverChats;
  }

  /// Chooses the learning rate. Continued training wants about a tenth of the rate with
  /// which a model of this size is trained from random weights.
  void choose_rate() {
    struct Size {
      double parameters;
      double fresh;
      double continued;
    };
    // The rates for fresh weights are those in the tables of GPT-3 and Llama, rounded.
    // The rates of continued training serve chats as well. Alpaca had 2e-5 for 7B, and
    // LIMA had 1e-5 for 65B.
    constexpr Size kSizes[] = {{5e7, 1e-3, 1e-4},
                               {5e8, 6e-4, 5e-5},
                               {2e9, 3e-4, 2e-5},
                               {2e10, 3e-4, 1.5e-5},
                               {1e30, 1.5e-4, 1e-5}};
    const auto parameters =
        static_cast<double>(facts_.model.description.num_parameters());
    const Size* size = kSizes;
    while (parameters > size->parameters) ++size;
    config_.optimizer.lr = facts_.has_weights ? size->continued : size->fresh;
    if (const double rate = rate_of_tuning(parameters); rate > 0.0) {
      config_.optimizer.lr = rate;
    }
    config_.schedule.kind = ScheduleKind::Cosine;
    config_.schedule.warmup_fraction = facts_.is_on_pairs() ? 0.1 : 0.02;
    config_.schedule.min_lr = config_.optimizer.lr / 10.0;
    because("schedule.kind", "the rate falls along a cosine to the end of the run");
    because("schedule.warmup_fraction",
            "the share of steps in which the rate rises: the first gradients are wild");
    because("schedule.min_lr", "a tenth of lr, as is usual");
    because(
        "optimizer.lr",
        facts_.is_on_pairs() ? "for pairs, far below the rates for chats"
        : facts_.lora        ? "adapters take about ten times the rate of all weights"
        : facts_.has_weights
            ? "to go on from trained weights: high rates forget, low ones learn little"
            : fmt::format("for random weights of {:.3g} parameters", parameters));
    if (!facts_.is_on_chats()) return;
    config_.optimizer.weight_decay = 0.0;
    because("optimizer.weight_decay", "published recipes of fine-tuning have none");
  }

  /// Returns the rate for pairs or an adapter; 0 for all weights on chats or text. Zephyr
  /// had 5e-7 for pairs, and 5e-6 with an adapter (zephyr-7b-dpo-full and -qlora of the
  /// alignment-handbook). QLoRA had 2e-4 up to 13B, and 1e-4 above.
  double rate_of_tuning(double parameters) const {
    if (facts_.is_on_pairs() && facts_.lora) return 5e-6;
    if (facts_.is_on_pairs()) return parameters < 2e9 ? 1e-6 : 5e-7;
    if (facts_.lora) return parameters < 2e10 ? 2e-4 : 1e-4;
    return 0.0;
  }

  void choose_times() {
    config_.checkpoint.every = 0;
    config_.checkpoint.every_minutes = 10.0;
    const double sequences =
        passes() * static_cast<double>(sequences_of(facts_.train, config_.data.seq_len));
    const int64_t steps =
        std::max<int64_t>(1, static_cast<int64_t>(sequences) / config_.batch.global_size);
    if (facts_.is_on_chats()) {
      config_.run.epochs = passes();
      because("run.epochs",
              fmt::format(
                  "about {} steps; {}", grouped(steps),
                  facts_.is_on_pairs()
                      ? "more passes over pairs drive the model far from its beginning"
                      : "fewer passes where the loss on held-out chats rises"));
    } else {
      config_.run.steps = steps;
      const bool exact = std::ranges::all_of(
          facts_.train, [](const DataFacts& data) { return data.exact; });
      because("run.steps", std::string(exact ? "" : "about ") +
                               "one pass over data.train; more steps read it again in "
                               "another order");
    }
    const int64_t tenth = std::max<int64_t>(steps / 10, 1);
    const int64_t every = std::min<int64_t>(tenth, 200);
    config_.validation.every = every;
    because("validation.every", every == tenth
                                    ? "steps: a tenth of the run"
                                    : "steps: often enough that a rise is seen soon");
    // Milestones come at steps of a validation, so that the loss on held-out text is
    // known for each checkpoint that is kept.
    config_.checkpoint.milestone_every = tenth / every * every;
    const int64_t stay = steps / config_.checkpoint.milestone_every;
    because("checkpoint.milestone_every",
            fmt::format(
                "steps: these checkpoints stay, to go back to; {} of {}", stay,
                facts_.lora
                    ? "the adapter alone"
                    : "about " + human_bytes(kCheckpointBytes *
                                             facts_.model.description.num_parameters())));
  }

  const NewRunFacts& facts_;
  NewRun run_;
  RunConfig& config_;
  bool fixed_ = false;
  int64_t shortest_ = kShortestForMemory;  // sequences may be no shorter
};

}  // namespace

int64_t sequences_of(const std::vector<DataFacts>& train, int64_t seq_len) {
  int64_t sequences = 0;
  for (const DataFacts& data : train) {
    if (data.records != "text") {
      // A row that is not full is a sequence, too.
      sequences += (data.tokens + seq_len - 1) / seq_len;
      continue;
    }
    // The last token of a store is a target only.
    sequences += data.fixed_length > 0 ? data.tokens / data.fixed_length
                                       : std::max<int64_t>(0, data.tokens - 1) / seq_len;
  }
  return sequences;
}

bool NewRunFacts::is_on_chats() const {
  return !train.empty() && train.front().records != "text";
}

bool NewRunFacts::is_on_pairs() const {
  return !train.empty() && train.front().records == "pairs";
}

NewRun choose_new_run(const NewRunFacts& facts) { return Chooser(facts).choose(); }

}  // namespace longhaul::apps
