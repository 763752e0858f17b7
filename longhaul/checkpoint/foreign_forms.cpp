#include "longhaul/checkpoint/foreign_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_past.h"
#include "longhaul/system/terminal.h"

namespace longhaul::checkpoint {
namespace {

// The most names that are looked at: in the directory, directories in the directory, and
// names in one of these.
constexpr size_t kMostNames = 100'000;
constexpr size_t kMostLookedInto = 256;
constexpr size_t kMostNamesInside = 256;

struct Name {
  std::string text;
  bool is_directory = false;
};

std::vector<Name> names_in(const fs::path& dir, size_t most) {
  std::vector<Name> names;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end;
       !error && it != end && names.size() < most; it.increment(error)) {
    std::error_code gone;
    names.push_back({it->path().filename().string(), it->is_directory(gone)});
  }
  return names;
}

bool any_is_like(const std::vector<Name>& names, std::string_view pattern) {
  return std::ranges::any_of(
      names, [&](const Name& name) { return glob_match(pattern, name.text); });
}

bool is_named_as_step(const fs::path& dir) {
  const std::string name = dir.filename().string();
  return std::ranges::any_of(
      std::initializer_list<const char*>{"step*", "*steps", "checkpoint-*",
                                         "global_step*"},
      [&](const char* pattern) { return glob_match(pattern, name); });
}

bool is_bert_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return glob_match("ckpt_*.pt", name) && step_in_name(name).has_value();
}

/// Tells what a directory is by the names in it.
class Directory {
 public:
  Directory(fs::path dir, std::vector<Name> names)
      : dir_(std::move(dir)), names_(std::move(names)) {}

  /// Returns the directory as a checkpoint, if it is one of a known form.
  std::optional<ForeignCheckpoint> form() const {
    for (const auto form :
         {&Directory::megatron, &Directory::trainer_in_place, &Directory::deep_speed,
          &Directory::trainer_in_parts, &Directory::distributed, &Directory::nxd}) {
      if (auto found = (this->*form)()) return found;
    }
    return std::nullopt;
  }

 private:
  bool has(const fs::path& name) const { return is_seen(dir_ / name); }
  bool has_any(std::initializer_list<const char*> names) const {
    return std::ranges::any_of(names, [&](const char* name) { return has(name); });
  }
  bool lists(std::string_view pattern) const { return any_is_like(names_, pattern); }

  ForeignCheckpoint found(const char* writer, Way way, const fs::path& path) const {
    return {writer, way, path, dir_};
  }

  std::optional<ForeignCheckpoint> megatron() const {
    const bool of_ranks = lists("mp_rank_*") && !lists("*_states.pt");
    const bool distributed = has("common.pt") && has(".metadata");
    if (!has("latest_checkpointed_iteration.txt") && !of_ranks && !distributed) {
      return std::nullopt;
    }
    return found("Megatron-LM", Way::Converter, dir_);
  }

  bool is_trainers() const {
    return has("trainer_state.json") ||
           glob_match("checkpoint-*", dir_.filename().string());
  }
  std::optional<ForeignCheckpoint> trainer_in_place() const {
    if (!is_trainers() || !has_any({"model.safetensors", "model.safetensors.index.json"}))
      return std::nullopt;
    return found(kTrainer, Way::AsItIs, dir_);
  }
  std::optional<ForeignCheckpoint> trainer_in_parts() const {
    if (!is_trainers()) return std::nullopt;
    if (has_any({"pytorch_model.bin", "pytorch_model.bin.index.json"})) {
      return found(kTrainer, Way::Weights, dir_);
    }
    const fs::path shards = "pytorch_model_fsdp_0";
    if (!has(shards / ".metadata")) return std::nullopt;
    return found(kTrainer, Way::Weights, dir_ / shards);
  }

  std::optional<ForeignCheckpoint> deep_speed() const {
    constexpr const char* kWriter = "DeepSpeed";
    const bool of_tags = is_seen_file(dir_ / "latest") &&
                         (has("zero_to_fp32.py") || lists("global_step*"));
    if (of_tags) return found(kWriter, Way::OwnScript, dir_);
    if (!lists("*_model_states.pt")) return std::nullopt;
    return found(kWriter, Way::OwnScript, dir_.parent_path());
  }

  std::optional<ForeignCheckpoint> distributed() const {
    constexpr const char* kSageMaker = "SageMaker Model Parallel";
    if (has(".metadata")) {
      const bool of_sagemaker = dir_.filename().string().ends_with("steps");
      return found(of_sagemaker ? kSageMaker : "PyTorch (DCP)", Way::Checkpoint, dir_);
    }
    const auto folder = std::ranges::find_if(names_, [&](const Name& name) {
      return glob_match("tp*-*", name.text) && has(fs::path(name.text) / ".metadata");
    });
    if (folder == names_.end()) return std::nullopt;
    return found(kSageMaker, Way::Checkpoint, dir_);
  }

  std::optional<ForeignCheckpoint> nxd() const {
    constexpr const char* kRankFile = "*tp_rank_*_pp_rank_*";
    if (!lists(kRankFile) &&
        !any_is_like(names_in(dir_ / "model", kMostNamesInside), kRankFile)) {
      return std::nullopt;
    }
    const bool of_a_run =
        has("checkpoint") || dir_.filename().string().starts_with("step_");
    const Way way = of_a_run && !has("done") ? Way::Unfinished
                    : has("optim")           ? Way::Checkpoint
                                             : Way::Weights;
    return found("NxD (neuronx-distributed)", way, dir_);
  }

  static constexpr const char* kTrainer = "Hugging Face's Trainer";

  fs::path dir_;
  std::vector<Name> names_;
};

/// Returns an entry of a directory as a checkpoint, if it is one.
std::optional<ForeignCheckpoint> form_of(const fs::path& path, bool is_directory) {
  if (is_directory) return Directory(path, names_in(path, kMostNamesInside)).form();
  if (!is_bert_file(path)) return std::nullopt;
  return ForeignCheckpoint{"the BERT script of aws-neuron-samples", Way::Checkpoint, path,
                           path.parent_path()};
}

/// Returns the names with a number that may be checkpoints, the highest number first.
std::vector<Name> by_number(std::vector<Name> names, std::optional<int64_t> step) {
  std::vector<std::pair<int64_t, Name>> numbered;
  for (Name& name : names) {
    const auto number = step_in_name(name.text);
    if (!number || (step && number != step)) continue;
    if (name.is_directory || is_bert_file(name.text)) {
      numbered.emplace_back(*number, std::move(name));
    }
  }
  std::ranges::sort(numbered, [](const auto& a, const auto& b) {
    return std::tie(b.first, a.second.text) < std::tie(a.first, b.second.text);
  });
  std::vector<Name> found;
  for (auto& [number, name] : numbered) {
    if (found.size() == kMostLookedInto) break;
    found.push_back(std::move(name));
  }
  return found;
}

/// Returns the directory into which the advised command writes the imported model. It
/// lies beside the one in which the checkpoint was found, so that none of its files is
/// touched. The path has a slash, without which checkpoint.resume takes no path.
std::string place_of_import(const ForeignCheckpoint& found) {
  const auto plain = [](const fs::path& path) {
    const fs::path normal = path.lexically_normal();
    return normal.has_filename() ? normal : normal.parent_path();
  };
  fs::path dir = plain(found.dir);
  const std::string name = dir.filename().string();
  if (name.empty() || name == "." || name == "..") dir = plain(fs::current_path() / dir);
  const char* const here = dir.has_parent_path() ? "" : "./";
  return fmt::format("{}{}-imported", here, dir.string());
}

/// Returns whether init.weights names this directory or a path below it.
bool takes_weights_of(const RunConfig& config, const fs::path& dir) {
  if (config.init.weights.empty()) return false;
  std::error_code error;
  const fs::path weights = fs::weakly_canonical(config.init.weights, error);
  const fs::path whole = fs::weakly_canonical(dir, error);
  const auto [end, unused] =
      std::mismatch(whole.begin(), whole.end(), weights.begin(), weights.end());
  return !error && end == whole.end();
}

/// Returns whether the run in run.dir has ever loaded a state or committed a checkpoint.
bool has_begun(const RunConfig& config) {
  const auto past = run::RunPast::read(config.run.dir);
  return past && (past->loads > 0 || past->newest);
}

std::optional<ForeignCheckpoint> foreign_that_is_meant(const RunConfig& config) {
  using Kind = ResumeFrom::Kind;
  const ResumeFrom& resume = config.checkpoint.resume;
  const fs::path dir = checkpoint_dir(config);
  if (resume.kind == Kind::Never) return std::nullopt;
  if (resume.kind == Kind::Path) {
    const bool is_own = is_seen(resume.path / run::kManifestFile) ||
                        has_committed(resume.path) ||
                        has_committed(checkpoints_dir_of(resume.path));
    return is_own ? std::nullopt : find_foreign(resume.path);
  }
  if (resume.kind == Kind::Step) {
    const fs::path own = dir / run::step_directory_name(resume.step);
    return is_seen(own) ? std::nullopt : find_foreign(dir, resume.step);
  }
  if (has_committed(dir) || has_begun(config)) return std::nullopt;
  for (const fs::path& place : {dir, config.run.dir}) {
    auto found = find_foreign(place);
    if (found && !takes_weights_of(config, place)) return found;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> step_in_name(const std::string& name) {
  std::string_view text = name;
  for (const std::string_view ending : {".pt", "steps"}) {
    if (text.ends_with(ending)) text.remove_suffix(ending.size());
  }
  size_t begin = text.size();
  while (begin > 0 && is_digit(text[begin - 1])) --begin;
  return whole_number<int64_t>(text.substr(begin));
}

std::optional<ForeignCheckpoint> find_foreign(const fs::path& path,
                                              std::optional<int64_t> step) {
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  if (!is_seen_directory(clean)) return form_of(clean, false);
  std::vector<Name> names = names_in(clean, kMostNames);
  if (!step) {
    if (auto found = Directory(clean, names).form()) {
      if (is_named_as_step(clean)) found->dir = clean.parent_path();
      return found;
    }
  }
  std::optional<ForeignCheckpoint> unfinished;
  for (const Name& name : by_number(std::move(names), step)) {
    auto found = form_of(clean / name.text, name.is_directory);
    if (!found) continue;
    found->dir = clean;
    if (found->way != Way::Unfinished) return found;
    if (!unfinished) unfinished = std::move(found);
  }
  return unfinished;
}

std::string foreign_advice(const ForeignCheckpoint& found, const fs::path& model) {
  const std::string path = found.path.string();
  const std::string out = place_of_import(found);
  const std::string weights_run =
      "in a run whose run.dir and checkpoint.dir do not have it";
  std::string what = fmt::format("{} is a checkpoint of {}", path, found.writer);
  const auto import = [&](const std::string& source, std::vector<std::string> more) {
    std::vector<std::string> words = {"longhaul", "import", source, "--config",
                                      model.string()};
    more.insert(more.end(), {"--out", out});
    words.insert(words.end(), more.begin(), more.end());
    return system::describe_command(words);
  };
  switch (found.way) {
    case Way::Checkpoint:
      return fmt::format(
          "{}. To go on from it type `{}`, then set checkpoint.resume = \"{}\"", what,
          import(path, {"--format", "checkpoint"}), out);
    case Way::Weights:
      return fmt::format(
          "{}. To go on from its weights, without moments, type `{}`, then set "
          "init.weights = \"{}\" {}",
          what, import(path, {}), out, weights_run);
    case Way::AsItIs:
      return fmt::format(
          "{}. To go on from its weights set init.weights = \"{}\"; its moments and its "
          "step stay behind",
          what, path);
    case Way::OwnScript: {
      const std::string fp32 = out + "-fp32";
      return fmt::format(
          "{}. To go on from its weights, without moments, type `{}`, which is "
          "DeepSpeed's own, and `{}`, then set init.weights = \"{}\" {}",
          what,
          system::describe_command(
              {"python3", (found.path / "zero_to_fp32.py").string(), path, fp32}),
          import(fp32, {}), out, weights_run);
    }
    case Way::Converter:
      return fmt::format(
          "{}, whose names `longhaul import` does not read. To go on from its weights "
          "make a Hugging Face directory of it with a converter of Megatron's "
          "(AutoBridge.export_ckpt of Megatron Bridge), then set init.weights to that "
          "directory {}",
          what, weights_run);
    case Way::Unfinished:
      break;
  }
  return fmt::format(
      "{} that was never finished (there is no file `done`), and there is no earlier "
      "one: `longhaul import` refuses it",
      what);
}

void refuse_foreign(const RunConfig& config) {
  const auto found = foreign_that_is_meant(config);
  if (!found) return;
  fail_input("checkpoint",
             "{}. checkpoint.resume = \"never\" begins without it and leaves it as it is",
             foreign_advice(*found, config.model.config));
}

void refuse_foreign_start(const RunConfig& config) {
  if (config.checkpoint.mirror || has_committed(checkpoint_dir(config))) return;
  refuse_foreign(config);
}

}  // namespace longhaul::checkpoint
