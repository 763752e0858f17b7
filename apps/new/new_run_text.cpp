#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "apps/new/new_run.h"
#include "longhaul/base/text.h"
#include "longhaul/config/value.h"

namespace longhaul::apps {
namespace {

/// The column in which a comment behind a setting begins.
constexpr size_t kCommentColumn = 30;

std::string quoted(const std::string& text) { return config::print_value({text, ""}); }
std::string quoted(const fs::path& path) { return quoted(path.string()); }

/// Returns a floating-point number in TOML, with a point or an exponent.
std::string fraction(double number) { return config::print_value({number, ""}); }

class Writer {
 public:
  Writer(const NewRun& run, const NewRunFacts& facts) : run_(run), facts_(facts) {}

  std::string text() {
    head();
    run_section();
    model_section();
    data_section();
    tuning_sections();
    batch_and_memory();
    optimizer_section();
    times();
    return std::move(text_);
  }

 private:
  void line(const std::string& text) { text_ += text + "\n"; }
  void section(const char* name) {
    text_ += fmt::format("\n[{}]\n", name);
    section_ = name;
  }
  void key(const char* name, const std::string& value, std::string comment = {}) {
    const auto why = run_.why.find(section_ + "." + name);
    if (comment.empty() && why != run_.why.end()) comment = why->second;
    std::string written = fmt::format("{} = {}", name, value);
    if (!comment.empty()) {
      written += std::string(
          std::max<size_t>(2, kCommentColumn - std::min(kCommentColumn, written.size())),
          ' ');
      written += "# " + plain(comment);
    }
    line(written);
  }

  void head() {
    const MachineFacts& machine = facts_.machine;
    line(fmt::format("# {} of {}, written by `longhaul new`.", work(),
                     plain(facts_.model_path.string())));
    line(fmt::format(
        "# For a machine with {}{}.",
        machine.is_cpu() ? counted(machine.threads, "CPU")
                         : fmt::format("{} x {}", machine.ranks, machine.device_name),
        machine.memory_bytes > 0
            ? fmt::format(" and {} of memory{}", human_bytes(machine.memory_bytes),
                          machine.is_cpu() ? "" : " each")
            : ""));
    if (!run_.warning.empty()) line("# WARNING: " + run_.warning + ".");
    line("# Paths count from the directory in which `longhaul train` is typed.");
    line("# `longhaul config` prints every setting; what is not named has its default.");
    for (const DataFacts& data : facts_.train) {
      if (data.build.empty()) continue;
      line(
          "# Its data are not built yet, so that their tokens are estimated. Build "
          "them:");
      line("#   " + plain(data.build));
    }
  }

  std::string work() const {
    const std::string with = facts_.lora ? " with an adapter" : "";
    if (facts_.is_on_pairs()) return "Preference training" + with;
    if (facts_.is_on_chats()) return "Fine-tuning on chats" + with;
    return (facts_.has_weights ? "Continued pretraining" : "Pretraining") + with;
  }

  /// Returns the text without control characters, so that a path that a person typed
  /// cannot end a comment.
  static std::string plain(std::string text) {
    std::ranges::replace_if(
        text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; },
        '?');
    return text;
  }

  void run_section() {
    const RunSection& run = run_.config.run;
    section("run");
    key("dir", quoted(run.dir), "log, metrics, checkpoints");
    if (run.epochs) {
      key("epochs", fraction(*run.epochs));
    } else {
      key("steps", std::to_string(run.steps.value_or(1)));
    }
    if (facts_.machine.is_cpu()) {
      key("device", quoted(run.device), "no accelerator was found here");
      if (facts_.machine.ranks == 1) {
        key("threads", std::to_string(run.threads),
            "all CPUs here; leave it out where several ranks share a machine");
      }
    } else {
      key("device", quoted(run.device),
          facts_.machine.ranks == 1
              ? "the one that was found here"
              : fmt::format("one for each of {0} ranks: longhaul launch -n {0} FILE",
                            facts_.machine.ranks));
    }
    if (run.neuron_python != RunSection{}.neuron_python) {
      key("neuron_python", quoted(run.neuron_python), "has torch_neuronx");
    }
  }

  void model_section() {
    section("model");
    key("config", quoted(run_.config.model.config));
    if (facts_.has_weights) {
      section("init");
      key("weights", quoted(run_.config.init.weights), "training goes on from these");
    } else {
      line(facts_.model_path.extension() == ".json"
               ? "# Its first weights are random: a configuration alone was named; name "
                 "its directory to go on from the weights there."
               : "# Its first weights are random: only its configuration is there, no "
                 "weights.");
    }
  }

  void data_section() {
    const DataSection& data = run_.config.data;
    section("data");
    key("seq_len", std::to_string(data.seq_len));
    if (data.pack == PackKind::Whole) key("pack", "\"whole\"");
    line("train = [");
    for (size_t i = 0; i < data.train.size(); ++i) {
      const TrainSource& source = data.train[i];
      const DataFacts& facts = facts_.train[i];
      std::string entry = "path = " + quoted(facts.path);
      if (data.train.size() > 1) entry += ", weight = " + fraction(source.weight);
      if (source.field != TrainSource{}.field)
        entry += ", field = " + quoted(source.field);
      line(fmt::format("  {{ {} }},  # {}: {}{} tokens", entry, facts.kind,
                       facts.exact ? "" : "about ", grouped(facts.tokens)));
    }
    line("]");
    if (data.train.size() > 1) {
      line(
          "# Weights are the sources' shares of the tokens: a pass reads each about "
          "once.");
    }
    if (data.validation.empty() && facts_.is_on_chats()) {
      line(
          "# Nothing is held out: `longhaul data build --holdout 10%` needs more chats.");
      return;
    }
    if (data.validation.empty()) {
      line(
          "# Nothing is held out: `longhaul data build --holdout 1%` or `longhaul data "
          "split`");
      line(
          "# make a store for validation = [{ name = \"mine\", path = \"data/mine-val\" "
          "}].");
      return;
    }
    line("validation = [");
    for (const ValidationSource& source : data.validation) {
      line(fmt::format("  {{ name = {}, path = {} }},", quoted(source.name),
                       quoted(source.path.entries.front())));
    }
    line("]");
  }

  void tuning_sections() {
    if (const AdapterSection& adapter = run_.config.adapter; adapter.kind) {
      section("adapter");
      key("kind", quoted(std::string("lora")),
          "low-rank parts of all linear layers of the blocks; or \"dora\"");
      key("rank", std::to_string(adapter.rank.value_or(0)));
      key("alpha", fraction(adapter.alpha.value_or(0.0)));
    }
    if (const PreferenceSection& preference = run_.config.preference; preference.loss) {
      section("preference");
      key("loss", quoted(std::string("sigmoid")));
      key("beta", fraction(preference.beta));
    }
  }

  void batch_and_memory() {
    const RunConfig& c = run_.config;
    section("batch");
    key("global_size", std::to_string(c.batch.global_size));
    key("micro_size", std::to_string(c.batch.micro_size));
    if (c.parallel.zero != ParallelSection{}.zero) {
      section("parallel");
      key("zero", std::to_string(c.parallel.zero));
    }
    if (c.memory.recompute != RecomputeKind::None) {
      section("memory");
      key("recompute",
          c.memory.recompute == RecomputeKind::Full ? "\"full\"" : "\"selective\"");
    }
    section("precision");
    key("compute", c.precision.compute == ComputeType::Bf16 ? "\"bf16\"" : "\"fp32\"");
  }

  void optimizer_section() {
    const RunConfig& c = run_.config;
    section("optimizer");
    key("lr", fraction(c.optimizer.lr));
    if (facts_.is_on_chats()) key("weight_decay", fraction(c.optimizer.weight_decay));
    section("schedule");
    key("kind", "\"cosine\"");
    key("warmup_fraction", fraction(c.schedule.warmup_fraction.value_or(0.0)));
    key("min_lr", fraction(c.schedule.min_lr));
  }

  void times() {
    const RunConfig& c = run_.config;
    section("checkpoint");
    key("every", std::to_string(c.checkpoint.every),
        "saves come by the clock, so that a loss is bounded in time:");
    key("every_minutes", fraction(c.checkpoint.every_minutes),
        "a crash loses no more than this and what a save takes; the end is saved, too");
    key("milestone_every", std::to_string(c.checkpoint.milestone_every));
    if (c.data.validation.empty()) return;
    section("validation");
    key("every", std::to_string(c.validation.every));
  }

  const NewRun& run_;
  const NewRunFacts& facts_;
  std::string text_;
  std::string section_;
};

}  // namespace

std::string new_run_toml(const NewRun& run, const NewRunFacts& facts) {
  return Writer(run, facts).text();
}

}  // namespace longhaul::apps
