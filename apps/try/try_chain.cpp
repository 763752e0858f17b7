#include "apps/try/try_chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <utility>

#include "apps/new_file.h"
#include "apps/try/followed_training.h"
#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/json.h"
#include "longhaul/base/process.h"
#include "longhaul/base/text.h"
#include "longhaul/cluster/process/command.h"
#include "longhaul/config/value.h"
#include "longhaul/data/store/store.h"
#include "longhaul/system/isa.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/system/terminal.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::apps {
namespace {

constexpr int64_t kSequence = 128;
constexpr int64_t kBatch = 8;
constexpr int64_t kSpeedSteps = 12;
constexpr double kMostPasses = 20.0;
constexpr int kBriefLines = 3;
/// The share of the time that is kept for the sample and the export.
constexpr double kEndShare = 0.1;
/// A command counts as hung after so many times the seconds that everything should take,
/// and so many more.
constexpr double kDeadlineFactor = 20.0;
constexpr double kDeadlineMore = 600.0;

using Words = std::vector<std::string>;

/// Makes the directory of a try, which nothing may have had before.
ScratchPath make_directory(const fs::path& path) {
  if (path.has_parent_path()) fs::create_directories(path.parent_path());
  std::error_code there;  // a link to nothing
  if (!fs::create_directory(path, there)) refuse_existing(path, "try");
  if (there) throw fs::filesystem_error("mkdir", path, there);
  return ScratchPath(path);
}

std::string shown(const Words& words) {
  return "longhaul " + system::describe_command(words);
}

class TryChain {
 public:
  TryChain(const TextSample& sample, const TryOptions& options)
      : sample_(sample), options_(options), directory_(make_directory(options.dir)) {
    system::set_last_words(
        fmt::format("{} is left behind; remove it", options.dir.string()));
  }

  void run() {
    take_sample();
    make_tokenizer();
    make_stores();
    make_model();
    const double rate = measure_speed();
    train(rate);
    const Words prompt = {
        "generate", in("run"),       "--prompt", prompt_of(sample_), "--max-new-tokens",
        "100",      "--temperature", "0.8",      "--seed",           "1"};
    run_again(prompt);
    run_again({"export", in("run"), "--out", in("hf")});
    directory_.keep();
    tell_end();
  }

 private:
  std::string in(const char* name) const { return (options_.dir / name).string(); }

  void title(const std::string& text) {
    fmt::print("\n{}\n", text);
    std::fflush(stdout);
  }

  void check_signal() const {
    if (signals_.raised() == 0) return;
    fail_temporary("try", "{}: {} was removed; the same command begins again",
                   system::signal_name(signals_.raised()), options_.dir.string());
  }

  /// Returns the signal that this process got, to send it on to the command that is
  /// running; else 0. It is returned only once, so that the command can end in order.
  int passed_on() {
    if (signals_.raised() == 0 || std::exchange(passed_on_, true)) return 0;
    return signals_.raised();
  }

  void check_end(const Words& words, const cluster::CommandResult& result) const {
    check_signal();
    if (result.ok() || result.exit_code == kExitStopped) return;
    const std::string what =
        fmt::format("`{}` {}; {} was removed", shown(words),
                    result.timed_out ? std::string("took too long")
                                     : fmt::format("ended with {}", result.exit_code),
                    options_.dir.string());
    if (result.exit_code == kExitSettings) throw InputError("try", what);
    if (result.exit_code == kExitTemporary) throw TemporaryError("try", what);
    throw Error(ErrorKind::Internal, "try", what);
  }

  cluster::CommandResult start(const Words& words, cluster::CommandOptions how,
                               const std::function<void()>& look = {}) {
    check_signal();
    fmt::print("$ {}\n", shown(words));
    std::fflush(stdout);
    Words all = {this_program()};
    all.insert(all.end(), words.begin(), words.end());
    how.deadline_seconds = kDeadlineFactor * options_.seconds + kDeadlineMore;
    how.look = [&] {
      if (look && signals_.raised() == 0) look();
      return passed_on();
    };
    return cluster::run_command(all, how);
  }

  /// Runs a command whose output goes to the person.
  void run_again(const Words& words) {
    again_.push_back(words);
    cluster::CommandOptions how;
    how.shares_output = true;
    check_end(words, start(words, how));
  }

  /// Runs a command and shows only the first lines of its output.
  void run_again_briefly(const Words& words) {
    again_.push_back(words);
    const auto result = start(words, {});
    size_t end = 0;
    for (int line = 0; line < kBriefLines && end < result.output.size(); ++line) {
      end = std::min(result.output.find('\n', end), result.output.size() - 1) + 1;
    }
    fmt::print("{}", result.output.substr(0, end));
    std::fflush(stdout);
    fmt::print(stderr, "{}", result.errors);
    check_end(words, result);
  }

  /// Trains without showing the log, which is in the run's directory too; the person sees
  /// its errors if the training fails.
  void train_quietly(const Words& words, FollowedTraining& follow) {
    const auto result = start(words, {}, [&] { follow.look(); });
    follow.finish();
    if (!result.ok() && result.exit_code != kExitStopped && signals_.raised() == 0) {
      fmt::print(stderr, "{}", result.errors);
    }
    check_end(words, result);
  }

  void take_sample() {
    std::string lines;
    for (const std::string& document : sample_.documents) {
      lines += json_text(OrderedJson{{"text", document}}) + "\n";
    }
    write_text_durable(options_.dir / "text.jsonl", lines);
    const std::string first = sample_.files.front().string();
    const std::string files = counted(static_cast<int64_t>(sample_.files_in_all), "file");
    std::string from = first;
    if (sample_.files_in_all > 1) {
      from =
          sample_.files.size() < sample_.files_in_all
              ? fmt::format("{} of {}, {} and so on", sample_.files.size(), files, first)
              : fmt::format("{}, {} and so on", files, first);
    }
    fmt::print("{} {} of {}, cut into {}: {}\n", sample_.whole ? "all" : "only the first",
               human_bytes(sample_.bytes),
               sample_.whole ? from
                             : fmt::format("{} ({} in all)", from,
                                           human_bytes(sample_.stored_bytes)),
               counted(std::ssize(sample_.documents), "document"), in("text.jsonl"));
    if (!sample_.repeats) return;
    fmt::print(
        "the text repeats itself: its held-out part does not test what the model has "
        "learned\n");
  }

  void make_tokenizer() {
    title("A tokenizer from the text");
    run_again({"data", "train-tokenizer", in("text.jsonl"), "--vocab-size",
               std::to_string(try_vocab_size(sample_.bytes)), "--out", in("model")});
  }

  void make_stores() {
    title("The text as tokens, with a part held out");
    const double percent = std::ceil(100.0 * held_out_share(sample_.bytes));
    run_again_briefly({"data", "build", in("text.jsonl"), "--tokenizer", in("model"),
                       "--out", in("data"), "--holdout", fmt::format("{}%", percent),
                       "--seq-len", std::to_string(kSequence)});
  }

  void make_model() {
    const auto tokenizer = tokenizer::Tokenizer::load(options_.dir / "model");
    const std::string json =
        try_model_json(tokenizer->vocab_size(), tokenizer->bos_id().value_or(0),
                       tokenizer->eos_id().value_or(0));
    write_text_durable(options_.dir / "model" / "config.json", json);
    write_run_file(kSpeedSteps);
  }

  void write_run_file(int64_t steps) {
    write_text_atomic(options_.dir / "run.toml",
                      try_run_toml({options_.dir, steps,
                                    system::best_isa() >= system::Isa::Avx512Bf16}));
  }

  /// Trains a few steps and returns the sequences per second.
  double measure_speed() {
    title("How fast this machine is");
    const Words words = {"train", in("run.toml"),      "--set", "run.dir=" + in("speed"),
                         "--set", "data.validation=[]"};
    FollowedTraining follow(options_.dir / "speed", {0.2 * options_.seconds, false});
    const system::Stopwatch watch;
    train_quietly(words, follow);
    const double rate = follow.sequences_per_s();
    // The time besides the steps is what the program needs to start and to end. generate
    // and export take about as long.
    starting_ = std::max(0.0, watch.seconds() - follow.seconds_of_steps());
    fmt::print("  {:.0f} tokens a second\n", rate * static_cast<double>(kSequence));
    std::error_code ignored;
    fs::remove_all(options_.dir / "speed", ignored);
    return rate;
  }

  void train(double rate) {
    TrySpeed speed;
    speed.sequences_per_s = rate;
    speed.seconds =
        std::max(options_.seconds / 20.0, options_.seconds * (1.0 - kEndShare) -
                                              watch_.seconds() - 3.0 * starting_);
    speed.train_sequences = (data::read_store_info(in("data")).tokens - 1) / kSequence;
    const int64_t steps = try_steps(speed);
    write_run_file(steps);
    title(fmt::format("Training: {} of {} tokens", counted(steps, "step"),
                      grouped(kBatch * kSequence)));
    FollowedTraining follow(options_.dir / "run", {1.25 * speed.seconds + 3.0, true});
    again_.push_back({"train", in("run.toml")});
    train_quietly(again_.back(), follow);
    fmt::print("{}\n", follow.summary());
    title("What it writes, and the model as a Hugging Face directory");
  }

  void tell_end() const {
    fmt::print(
        "\n"
        "Everything took {}. These are the commands again; type them with larger numbers "
        "and another directory:\n"
        "\n",
        human_duration(watch_.seconds()));
    for (const Words& words : again_) fmt::print("  {}\n", shown(words));
    fmt::print(
        "\nWhat to enlarge:\n"
        "  {}  {}name your own files in its place\n"
        "  --vocab-size  32000 and more for gigabytes of text\n"
        "  {}  the model: hidden_size, num_hidden_layers, vocab_size\n"
        "  {}  run.steps, data.seq_len, batch.global_size, a smaller optimizer.lr\n"
        "A model that somebody has trained before learns your text faster than this one: "
        "put it in\nthe place of {}; `longhaul new MODEL DATA --out run.toml` writes the "
        "run file for it.\n",
        in("text.jsonl"), sample_.whole ? "" : "is the beginning of your text only; ",
        in("model/config.json"), in("run.toml"), in("model"));
  }

  const TextSample& sample_;
  const TryOptions& options_;
  system::Stopwatch watch_;
  system::SignalWatch signals_;
  ScratchPath directory_;
  std::vector<Words> again_;
  double starting_ = 0.0;
  bool passed_on_ = false;
};

}  // namespace

int64_t try_vocab_size(uint64_t text_bytes) {
  constexpr uint64_t kBytesPerToken = 400;
  const uint64_t fitting =
      std::bit_floor(std::max<uint64_t>(text_bytes / kBytesPerToken, 1));
  return static_cast<int64_t>(std::clamp<uint64_t>(fitting, 512, 4096));
}

std::string try_model_json(int64_t vocab_size, int64_t bos, int64_t eos) {
  const OrderedJson json = {{"architectures", {"LlamaForCausalLM"}},
                            {"model_type", "llama"},
                            {"vocab_size", vocab_size},
                            {"hidden_size", 128},
                            {"intermediate_size", 384},
                            {"num_hidden_layers", 4},
                            {"num_attention_heads", 2},
                            {"num_key_value_heads", 2},
                            {"max_position_embeddings", 1024},
                            {"rms_norm_eps", 1e-5},
                            {"rope_theta", 10000.0},
                            {"hidden_act", "silu"},
                            {"tie_word_embeddings", true},
                            {"bos_token_id", bos},
                            {"eos_token_id", eos},
                            {"torch_dtype", "float32"}};
  return json_text(json, 2) + "\n";
}

std::string try_run_toml(const TryRunFile& file) {
  const auto path = [&](const char* name) {
    return config::print_value({(file.dir / name).string(), ""});
  };
  return fmt::format(
      "# A first small training, as `longhaul try` does it.\n"
      "[run]\n"
      "dir = {}\n"
      "steps = {}  # what fitted into the time; more is better\n\n"
      "[model]\n"
      "config = {}  # its first weights are random\n\n"
      "[data]\n"
      "seq_len = {}\n"
      "train = [{{ path = {} }}]\n"
      "validation = [{{ name = \"held-out\", path = {} }}]\n\n"
      "[batch]\n"
      "global_size = {}\n"
      "micro_size = {}\n\n"
      "[precision]\n"
      "compute = \"{}\"\n\n"
      "[optimizer]\n"
      "lr = 5e-3  # for a model as small as this; larger ones want less\n\n"
      "[schedule]\n"
      "warmup_fraction = 0.1\n"
      "min_lr = 5e-4\n\n"
      "[checkpoint]\n"
      "every_minutes = 10\n\n"
      "[log]\n"
      "tensorboard = false\n\n"
      "[validation]\n"
      "every = 0    # at the beginning and at the end\n"
      "batches = 4\n",
      path("run"), file.steps, path("model"), kSequence, path("data"), path("data-val"),
      kBatch, kBatch, file.bf16 ? "bf16" : "fp32");
}

int64_t try_steps(const TrySpeed& speed) {
  const double batch = static_cast<double>(kBatch);
  const double in_time = speed.seconds * speed.sequences_per_s / batch;
  const double of_data = kMostPasses * static_cast<double>(speed.train_sequences) / batch;
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(in_time, of_data)));
}

void run_try_chain(const TextSample& sample, const TryOptions& options) {
  TryChain(sample, options).run();
}

}  // namespace longhaul::apps
