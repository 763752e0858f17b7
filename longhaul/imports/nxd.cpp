#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/numbers.h"
#include "longhaul/checkpoint/foreign_forms.h"
#include "longhaul/imports/foreign_model.h"
#include "longhaul/imports/numbered_optimizer.h"

namespace longhaul::imports {
namespace {

/// Which part of a neuronx-distributed checkpoint a file is.
struct NxdRank {
  int64_t dp = 0;
  int64_t ep = 0;
  int64_t tp = 0;
  int64_t pp = 0;
  bool full = false;  ///< "full_tp_rank_..": optimizer state whose dp shards were merged
  auto operator<=>(const NxdRank&) const = default;
};

/// The files of one kind (model, optim). Every tp and pp rank is there.
struct NxdFiles {
  int64_t tp = 0;
  int64_t pp = 0;
  int64_t dp = 1;
  bool full = false;
  std::map<NxdRank, fs::path> paths;
  const fs::path& at(int64_t dp_rank, int64_t tp_rank, int64_t pp_rank) const {
    return paths.at({dp_rank, 0, tp_rank, pp_rank, full});
  }
};

/// A checkpoint directory of neuronx-distributed, in one of its layouts:
/// step_N/{model,optim}/dp_rank_.., DIR/tp_rank_XX_pp_rank_XX[/checkpoint.pt], or the
/// rank files themselves.
struct NxdLayout {
  fs::path dir;    ///< directory of the step
  fs::path model;  ///< directory of the model's files
  NxdFiles model_files;
  std::optional<NxdFiles> optimizer_files;
  std::optional<int64_t> step;  ///< the number at the end of the directory's name
  std::vector<std::string> notes;
};

constexpr int64_t kMaxRank = 1'000'000;

// Removes "tp_rank_03" and the "_" behind it from the front of `text`.
bool take_rank(std::string_view& text, std::string_view axis, int64_t& rank) {
  const std::string head = fmt::format("{}_rank_", axis);
  if (!text.starts_with(head)) return false;
  std::string_view rest = text.substr(head.size());
  const auto number = take_number<int64_t>(rest);
  if (!number || *number < 0 || *number > kMaxRank) return false;
  rank = *number;
  text = rest;
  if (text.starts_with('_')) text.remove_prefix(1);
  return true;
}

/// Parses "dp_rank_00_tp_rank_01_pp_rank_00.pt", also with an ep_rank or without a
/// dp_rank, and "full_tp_rank_00_pp_rank_00.pt"; with or without ".pt". Returns nothing
/// for other names.
std::optional<NxdRank> parse_nxd_name(std::string name) {
  if (name.ends_with(".pt")) name.resize(name.size() - 3);
  std::string_view text = name;
  NxdRank rank;
  if (text.starts_with("full_")) {
    rank.full = true;
    text.remove_prefix(5);
  }
  if (!rank.full) take_rank(text, "dp", rank.dp);
  take_rank(text, "ep", rank.ep);
  if (!take_rank(text, "tp", rank.tp) || !take_rank(text, "pp", rank.pp)) {
    return std::nullopt;
  }
  if (!text.empty() && !take_rank(text, "dp", rank.dp)) return std::nullopt;
  if (!text.empty()) return std::nullopt;
  return rank;
}

std::map<NxdRank, fs::path> rank_files(const fs::path& dir) {
  std::map<NxdRank, fs::path> found;
  for (fs::path path : paths_in(dir)) {
    const auto rank = parse_nxd_name(path.filename().string());
    if (!rank) continue;
    if (fs::is_directory(path)) {
      path /= "checkpoint.pt";
      if (!fs::exists(path)) continue;
    }
    const auto [place, added] = found.emplace(*rank, path);
    if (!added) {
      fail_input("import", "{} and {} are files of the same rank", place->second.string(),
                 path.string());
    }
  }
  return found;
}

// Checks that every rank of the grid is there; the largest numbers give its size.
NxdFiles complete(std::map<NxdRank, fs::path> paths, const fs::path& dir) {
  NxdFiles files;
  files.full = paths.begin()->first.full;
  for (const auto& [rank, path] : paths) {
    if (rank.ep > 0) {
      fail_input(
          "import",
          "{}: the part of a mixture's experts that ep_rank {} has, and shards of "
          "experts are not put together; import the Hugging Face files of the same model",
          path.string(), rank.ep);
    }
    if (rank.full != files.full) {
      fail_input("import",
                 "{}: holds both merged and sharded optimizer files; remove the files of "
                 "one kind",
                 dir.string());
    }
    files.tp = std::max(files.tp, rank.tp + 1);
    files.pp = std::max(files.pp, rank.pp + 1);
    files.dp = std::max(files.dp, rank.dp + 1);
  }
  const uint64_t wanted = static_cast<uint64_t>(files.tp) *
                          static_cast<uint64_t>(files.pp) *
                          static_cast<uint64_t>(files.dp);
  if (paths.size() != wanted) {
    for (int64_t dp = 0; dp < files.dp; ++dp) {
      for (int64_t pp = 0; pp < files.pp; ++pp) {
        for (int64_t tp = 0; tp < files.tp; ++tp) {
          if (paths.contains({dp, 0, tp, pp, files.full})) continue;
          fail_input("import",
                     "{}: holds {} of {} rank files; the file of dp {} tp {} pp {} is "
                     "missing, copy the whole checkpoint",
                     dir.string(), paths.size(), wanted, dp, tp, pp);
        }
      }
    }
  }
  files.paths = std::move(paths);
  return files;
}

std::optional<NxdLayout> layout_of(const fs::path& dir) {
  NxdLayout layout;
  layout.dir = dir;
  layout.model = fs::is_directory(dir / "model") ? dir / "model" : dir;
  auto paths = rank_files(layout.model);
  if (paths.empty()) return std::nullopt;
  // The model is the same on every data-parallel rank, so that rank 0 is enough.
  std::erase_if(paths, [](const auto& item) { return item.first.dp > 0; });
  if (paths.empty()) {
    throw InputError("import", layout.model.string() + ": no files of dp_rank_00");
  }
  const std::string name = dir.filename().string();
  const bool is_step = fs::exists(dir / "checkpoint") || name.starts_with("step_");
  if (is_step && !fs::exists(dir / "done")) {
    fail_input(
        "import",
        "{}: an unfinished checkpoint (there is no file 'done'); give an earlier one",
        dir.string());
  }
  layout.model_files = complete(std::move(paths), layout.model);
  auto optimizer = rank_files(dir / "optim");
  if (!optimizer.empty()) {
    layout.optimizer_files = complete(std::move(optimizer), dir / "optim");
    if (layout.optimizer_files->tp != layout.model_files.tp ||
        layout.optimizer_files->pp != layout.model_files.pp) {
      throw InputError("import", dir.string() + ": model and optim have different ranks");
    }
  }
  layout.step = checkpoint::step_in_name(name);
  return layout;
}

/// Returns the layout, or nothing if `path` is no such checkpoint. A directory of steps
/// stands for its newest complete step, which has the largest number. Throws InputError
/// for an unfinished step (no file `done`), a missing rank, or experts.
std::optional<NxdLayout> find_nxd_layout(const fs::path& path) {
  if (!fs::is_directory(path)) return std::nullopt;
  if (auto layout = layout_of(path)) return layout;
  // The path is a directory of steps. Take the newest step that is done.
  std::vector<std::pair<int64_t, fs::path>> steps;
  for (const auto& entry : fs::directory_iterator(path)) {
    const auto number = checkpoint::step_in_name(entry.path().filename().string());
    if (!number || !entry.is_directory() || !fs::is_directory(entry.path() / "model")) {
      continue;
    }
    if (rank_files(entry.path() / "model").empty()) continue;
    steps.emplace_back(*number, entry.path());
  }
  if (steps.empty()) return std::nullopt;
  std::sort(steps.rbegin(), steps.rend());
  std::vector<std::string> notes;
  for (const auto& [number, dir] : steps) {
    if (!fs::exists(dir / "done")) {
      notes.push_back(dir.filename().string() +
                      " is unfinished (no file 'done'): skipped");
      continue;
    }
    auto layout = layout_of(dir);
    notes.push_back("newest complete checkpoint: " + dir.filename().string());
    layout->notes = std::move(notes);
    return layout;
  }
  fail_input("import", "{}: {} checkpoints, none of them complete (no file 'done')",
             path.string(), steps.size());
}

using Ranks = std::vector<std::vector<NamedTensors>>;

// Notes scheduler.pt and user_content.pt. Only the step in the latter is used.
void note_user_content(ForeignModel& model, const fs::path& dir) {
  if (fs::exists(dir / "scheduler.pt")) {
    model.notes.emplace_back(
        "scheduler.pt is not imported: [schedule] is a function of the step");
  }
  const fs::path path = dir / "user_content.pt";
  if (!fs::exists(path)) return;
  try {
    const ForeignState state = ForeignState::open(*model.files, path);
    std::string says;
    for (const char* key : {"total_steps", "epoch", "batch_idx"}) {
      const auto value = state.tree().find(state.root(), key);
      const auto number = value ? state.tree().as_int(*value) : std::nullopt;
      if (!number) continue;
      says += fmt::format(" {} {}", key, *number);
      if (std::string_view(key) == "total_steps") model.step = number;
    }
    model.notes.push_back("user_content.pt says" +
                          (says.empty() ? " nothing of use" : says));
  } catch (const InputError& error) {
    model.notes.push_back(fmt::format("user_content.pt is not read: {}", error.what()));
  }
}

// Returns the parameters among tensors, by the names that the merge uses.
NamedTensors parameters_of(const NamedTensors& tensors) {
  NamedTensors result;
  for (const auto& [name, tensor] : tensors) {
    std::string plain = strip_wrappers(name);
    if (is_buffer(plain) || tensor.dtype() == format::DType::Bool) continue;
    result.emplace_back(std::move(plain), tensor);
  }
  return result;
}

void read_optimizer(ForeignModel& model, const NxdLayout& layout, const Ranks& weights) {
  if (!layout.optimizer_files) {
    fail_input("import",
               "{}: no optimizer state (folder optim); import the weights alone, without "
               "--format checkpoint",
               layout.dir.string());
  }
  Ranks exp_avg(weights.size());
  Ranks exp_avg_sq(weights.size());
  Ranks masters(weights.size());
  bool have_masters = true;
  for (size_t pp = 0; pp < weights.size(); ++pp) {
    for (size_t tp = 0; tp < weights[pp].size(); ++tp) {
      std::vector<OptimizerShard> shards;
      for (int64_t dp = 0; dp < layout.optimizer_files->dp; ++dp) {
        ForeignState shard = ForeignState::open(
            *model.files, layout.optimizer_files->at(dp, static_cast<int64_t>(tp),
                                                     static_cast<int64_t>(pp)));
        const auto root = shard.root();
        shards.push_back({std::move(shard), root});
      }
      NamedOptimizer rank = read_numbered_optimizer(*model.files, std::move(shards),
                                                    parameters_of(weights[pp][tp]));
      if (model.updates && rank.updates != model.updates) {
        fail_input("import", "{}: some ranks have {} optimizer steps, others have {}",
                   layout.dir.string(), *model.updates, *rank.updates);
      }
      model.updates = rank.updates;
      have_masters = have_masters && !rank.masters.empty();
      exp_avg[pp].push_back(std::move(rank.exp_avg));
      exp_avg_sq[pp].push_back(std::move(rank.exp_avg_sq));
      masters[pp].push_back(std::move(rank.masters));
    }
  }
  model.exp_avg = merge_state(model, std::move(exp_avg), "exp_avg");
  model.exp_avg_sq = merge_state(model, std::move(exp_avg_sq), "exp_avg_sq");
  if (have_masters) {
    model.masters = merge_state(model, std::move(masters), "master weights");
  } else {
    model.notes.emplace_back(
        "no master weights were saved: masters start from the stored weights");
  }
  model.notes.push_back(fmt::format(
      "optimizer state: {} data-parallel {}, {} steps", layout.optimizer_files->dp,
      layout.optimizer_files->dp == 1 ? "shard" : "shards", model.updates.value_or(0)));
}

}  // namespace

std::optional<ForeignModel> open_nxd(const fs::path& path,
                                     const ForeignOptions& options) {
  const auto layout = find_nxd_layout(path);
  if (!layout) return std::nullopt;
  ForeignModel model;
  model.path = layout->dir;
  model.notes = layout->notes;
  const fs::path absolute = fs::absolute(layout->dir).lexically_normal();
  model.config =
      find_config(options.config, {layout->dir, layout->model, absolute.parent_path(),
                                   absolute.parent_path().parent_path()});
  model.files = std::make_shared<ForeignFiles>(path, options.limits);
  const NxdFiles& grid = layout->model_files;
  Ranks ranks(static_cast<size_t>(grid.pp));
  bool xser = false;
  for (int64_t pp = 0; pp < grid.pp; ++pp) {
    for (int64_t tp = 0; tp < grid.tp; ++tp) {
      const fs::path& file = grid.at(0, tp, pp);
      const ForeignState state = ForeignState::open(*model.files, file);
      xser = xser || state.xser();
      const auto dict = find_state_dict(state, file.string());
      if (dict != state.root() && state.tree().find(state.root(), "optimizer")) {
        model.has_optimizer = true;
      }
      ranks[static_cast<size_t>(pp)].push_back(state.tensors(dict, file.string()));
    }
  }
  model.what = fmt::format("neuronx-distributed checkpoint, tp {} pp {}{}", grid.tp,
                           grid.pp, xser ? ", one file per tensor (xser)" : "");
  model.step = layout->step;
  model.has_optimizer = model.has_optimizer || layout->optimizer_files.has_value();
  note_user_content(model, layout->dir);
  set_weights(model, ranks, options);
  if (options.want_optimizer) read_optimizer(model, *layout, ranks);
  return model;
}

}  // namespace longhaul::imports
