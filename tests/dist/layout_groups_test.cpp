// The communicators of a layout hold the ranks that its description says.
#include <gtest/gtest.h>

#include "longhaul/families/decoder.h"
#include "longhaul/session/layout.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/settings.h"

namespace longhaul::session {
namespace {

ModelDescription model(bool tied) {
  DecoderSettings s;
  s.hidden_size = 64;
  s.intermediate_size = 96;
  s.num_hidden_layers = 4;
  s.num_attention_heads = 8;
  s.num_key_value_heads = 2;
  s.head_dim = 8;
  s.rms_norm_eps = 1e-5;
  s.tie_word_embeddings = tied;
  return make_llama(s, 100, 4096).description;
}

/// Returns the world ranks of a group, in the order of the group. Collective.
std::vector<int> members(comm::Communicator& group, int world_rank) {
  const int64_t mine = world_rank;
  std::vector<int64_t> all(static_cast<size_t>(group.size()));
  group
      .all_gather({&mine, 1, format::DType::I64},
                  {all.data(), group.size(), format::DType::I64})
      ->wait();
  return {all.begin(), all.end()};
}

void check(const Layout& layout, int rank) {
  const layout::Groups groups = layout.description().rank_groups();
  const auto same = [&](comm::Communicator* group, layout::GroupKind kind) {
    if (group == nullptr) return;
    EXPECT_EQ(members(*group, rank), groups.members(kind, rank))
        << layout::group_name(kind) << " of rank " << rank << ", "
        << layout.description().describe();
  };
  same(&layout.mesh().pp(), layout::GroupKind::Pp);
  same(&layout.mesh().dp(), layout::GroupKind::Dp);
  same(&layout.mesh().cp(), layout::GroupKind::Cp);
  same(&layout.mesh().tp(), layout::GroupKind::Tp);
  same(&layout.mesh().data(), layout::GroupKind::Data);
  same(layout.groups().shard, layout::GroupKind::Shard);
  same(layout.groups().replicas, layout::GroupKind::Replicas);
  same(layout.groups().sums.at(layout::kTensorSum - 1), layout::GroupKind::Tp);
  same(layout.groups().sums.at(layout::kTensorFirst - 1), layout::GroupKind::Tp);
  same(layout.groups().sums.at(layout::kKeySum - 1), layout::GroupKind::KeyReplicas);
  same(layout.groups().sums.at(layout::kTiedSum - 1), layout::GroupKind::Tied);
  const layout::FlatSharding sharding = layout.description().sharding(rank);
  EXPECT_EQ(sharding.shard, layout.groups().shard->rank());
  EXPECT_EQ(sharding.shards, layout.groups().shard->size());
  EXPECT_EQ(sharding.replica, layout.groups().replicas->rank());
  EXPECT_EQ(sharding.replicas, layout.groups().replicas->size());
}

TEST(LayoutGroups, AreThoseOfTheDescription) {
  const std::vector<std::vector<std::string>> layouts = {
      {},
      {"parallel.zero=1", "parallel.shard_group=2"},
      {"parallel.tp=2", "parallel.pp=2", "parallel.zero=3"},
      {"parallel.tp=4", "parallel.sequence=true", "parallel.zero=1"},
      {"parallel.tp=8"},
      {"parallel.cp=2", "parallel.pp=4"},
      {"parallel.cp=2", "parallel.tp=2", "parallel.zero=2", "parallel.shard_group=node"}};
  for (const auto& sets : layouts) {
    for (const bool tied : {false, true}) {
      const RunConfig config = accepted("", sets).config;
      comm::run_fake_ranks(8, [&](const std::shared_ptr<comm::Communicator>& world) {
        const auto description = layout::describe_layout(config, model(tied), 8);
        check(Layout(description, config, at::kCPU, world), world->rank());
      });
    }
  }
}

TEST(LayoutGroups, MachinesAreNamedByTheFirstOfTheirRanks) {
  comm::run_fake_ranks(6, [&](const std::shared_ptr<comm::Communicator>& world) {
    const auto node = world->split(world->rank() % 2, world->rank(), "node");
    const layout::Placement placement = placement_of(*world, *node);
    for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(placement.node_of(rank), rank % 2);
  });
}

}  // namespace
}  // namespace longhaul::session
