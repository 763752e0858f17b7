#include "longhaul/rehearsal/rehearse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/layout/buckets.h"
#include "longhaul/optim/param_groups.h"
#include "longhaul/rehearsal/played_rank.h"
#include "longhaul/session/pairs.h"
#include "longhaul/system/run_on_threads.h"
#include "longhaul/tensor/device_limits.h"

namespace longhaul::rehearsal {
namespace {

/// Lets all ranks join their groups, as the run's layout makes them: each on a thread,
/// since they wait for each other.
std::vector<JoinedRank> join_ranks(const RunConfig& config,
                                   const layout::LayoutDescription& description,
                                   const std::optional<OnDevice>& on_device,
                                   Board& board) {
  const at::Device device = on_device ? on_device->device : fake_device();
  const int ranks = description.shape.world();
  std::vector<JoinedRank> joined(static_cast<size_t>(ranks));
  system::run_on_threads(ranks, [&](int rank) {
    try {
      JoinedRank& mine = joined[static_cast<size_t>(rank)];
      mine.player = std::make_shared<Player>();
      mine.player->rank = rank;
      mine.player->board = &board;
      mine.player->of_host = on_device.has_value();
      mine.world = RecordedGroup::world(mine.player);
      mine.layout =
          std::make_unique<session::Layout>(description, config, device, mine.world);
    } catch (...) {
      board.give_up(std::current_exception());
      throw;
    }
  });
  return joined;
}

/// Returns a text that is the same for two ranks if they do the same: all that their
/// actions follow from.
std::string kind_of(const layout::LayoutDescription& layout,
                    const ModelDescription& model,
                    const std::function<bool(const std::string&)>& frozen,
                    const JoinedRank& joined, const Board& board) {
  const int rank = joined.player->rank;
  const layout::MeshIndex index = layout::mesh_index_of(layout.shape, rank);
  std::string text = fmt::format("{} {}", index.pp, index.cp);
  if (layout.ep > 1) {
    text +=
        fmt::format(" {}", layout.rank_groups().place(layout::GroupKind::Ep, rank).index);
  }
  const auto placed = layout.parameters(model, rank, frozen);
  for (const layout::PlacedParameter& p : placed) {
    text += fmt::format(" {}", fmt::join(p.slice.extent, "x"));
  }
  for (const auto& bucket : layout::plan_buckets(placed, layout.sharding(rank))) {
    text += fmt::format(" {}/{}", bucket.owned.size(), bucket.saved.size());
    if (!layout.apart) continue;
    // Where each shape counts: so much of the rank's part is no padding.
    const auto& only = bucket.members.front();
    text +=
        fmt::format("/{}", std::clamp(only.begin + only.num_elements - bucket.saved.begin,
                                      int64_t{0}, bucket.saved.size()));
  }
  for (const int group : joined.player->groups) {
    text += fmt::format(" {}", board.groups()[static_cast<size_t>(group)].ranks.size());
  }
  return text;
}

/// Plays one rank on a thread of its own. An error names the rank's place.
void play_alone(const RunConfig& config, const optim::ParamGroups& groups,
                const RehearsalInputs& inputs, JoinedRank joined, PlayedRank& rank) {
  const std::shared_ptr<Player> player = joined.player;
  std::optional<Failure> failure;
  std::thread([&] {
    failure = Failure::of([&] {
      ModelConfig model = inputs.model;
      session::train_on_pairs(config, model);
      if (inputs.on_device) {
        compute(config, model, groups, inputs.steps, *inputs.on_device,
                std::move(joined));
      } else {
        play(config, model, groups, inputs.steps, std::move(joined), rank);
      }
    });
  }).join();
  if (!failure) return;
  failure->message = fmt::format("rank {} ({}), {}{}", rank.rank, rank.place,
                                 player->ledger.where(), failure->message);
  failure->raise();
}

}  // namespace

int64_t enough_micro_batches(const RunConfig& config,
                             const layout::LayoutDescription& of) {
  if (config.parallel.pipeline == PipelineKind::GPipe) return of.batch.accumulation;
  const int64_t filled = 2 * int64_t{of.shape.pp} * of.chunks;
  const int64_t enough = std::max<int64_t>(filled, 4);
  const int64_t all = of.batch.accumulation;
  // As many are left over by rounds of the stages as in the whole step.
  return all <= enough ? all : enough + (all - enough) % of.shape.pp;
}

namespace {

/// The run with a step of no more micro batches than the inputs ask for.
struct PlayedRun {
  RunConfig config;
  layout::LayoutDescription layout;
  int64_t all_micro_batches = 0;  ///< of the run's own step
};

PlayedRun played_run(const RehearsalInputs& inputs) {
  PlayedRun run{inputs.config, {}, 0};
  if (!inputs.on_device) run.config.run.device = "plugin";
  const auto describe = [&] {
    run.layout = layout::describe_layout(run.config, inputs.model.description,
                                         inputs.ranks, inputs.placement);
    run.layout.apart =
        inputs.on_device && !tensor::limits_of(inputs.on_device->device).writes_views;
  };
  describe();
  const int64_t most = inputs.most_micro_batches;
  run.all_micro_batches = run.layout.batch.accumulation;
  if (most == 0 || most >= run.all_micro_batches) return run;
  run.config.batch.global_size = most * run.config.batch.micro_size * run.layout.batch.dp;
  describe();
  return run;
}

}  // namespace

Rehearsal play_ranks(const RehearsalInputs& inputs) {
  const auto [config, layout, all_micro_batches] = played_run(inputs);
  const ModelDescription& model = inputs.model.description;
  Rehearsal rehearsal;
  rehearsal.all_micro_batches = all_micro_batches;
  rehearsal.micro_batches = layout.batch.accumulation;
  const optim::ParamGroups groups = optim::assign_param_groups(model, config.optimizer);
  const auto frozen = [&](const std::string& name) {
    return groups.settings.at(name).frozen;
  };
  Board board(static_cast<int>(inputs.ranks));
  std::vector<JoinedRank> joined = join_ranks(config, layout, inputs.on_device, board);
  std::map<std::string, size_t> kinds;
  std::vector<size_t> played_as;
  for (const JoinedRank& rank : joined) {
    const int number = rank.player->rank;
    const auto [kind, fresh] = kinds.try_emplace(
        kind_of(layout, model, frozen, rank, board), rehearsal.played.size());
    played_as.push_back(kind->second);
    if (!fresh) {
      ++rehearsal.played[kind->second].ranks;
      continue;
    }
    PlayedRank& played = rehearsal.played.emplace_back();
    played.rank = number;
    played.place = run::to_string(layout::mesh_index_of(layout.shape, number));
    played.script = std::make_shared<Script>();
  }
  for (size_t r = 0; r < joined.size(); ++r) {
    rehearsal.ranks.push_back(
        {rehearsal.played[played_as[r]].script.get(), joined[r].player->groups,
         run::to_string(layout::mesh_index_of(layout.shape, static_cast<int>(r)))});
  }
  rehearsal.groups = board.groups();
  std::mutex telling;
  size_t done = 0;
  system::share_among_threads(
      std::ssize(rehearsal.played), inputs.threads, [&](int64_t number) {
        const auto kind = static_cast<size_t>(number);
        if (inputs.on_device && !inputs.on_device->computes(kind)) return;
        PlayedRank& rank = rehearsal.played[kind];
        play_alone(config, groups, inputs,
                   std::move(joined[static_cast<size_t>(rank.rank)]), rank);
        const std::lock_guard lock(telling);
        if (inputs.told) inputs.told(++done, rehearsal.played.size());
      });
  return rehearsal;
}

void compute_together(const RehearsalInputs& inputs,
                      const std::shared_ptr<comm::Communicator>& world) {
  const auto [config, layout, all_micro_batches] = played_run(inputs);
  ModelConfig model = inputs.model;
  session::train_on_pairs(config, model);
  const at::Device device = inputs.on_device->device;
  JoinedRank mine{nullptr, world,
                  std::make_unique<session::Layout>(layout, config, device, world)};
  compute(config, model,
          optim::assign_param_groups(inputs.model.description, config.optimizer),
          inputs.steps, *inputs.on_device, std::move(mine));
}

}  // namespace longhaul::rehearsal
