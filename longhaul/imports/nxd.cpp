#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/imports/foreign_model.h"
#include "longhaul/imports/numbered_optimizer.h"
#include "longhaul/imports/nxd_layout.h"

namespace longhaul::imports {
namespace {

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
        "no master weights were saved: masters start from the stored "
        "weights");
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
