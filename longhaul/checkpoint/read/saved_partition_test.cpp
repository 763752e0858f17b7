#include "longhaul/checkpoint/read/saved_partition.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/families/decoder.h"
#include "tests/support/checkpoint_model.h"
#include "tests/support/rank_threads.h"
#include "tests/support/settings.h"

namespace longhaul::checkpoint {
namespace {

using testing::TempDir;
using Sizes = std::vector<int64_t>;

/// Returns a model of six layers, of which only the first sees all positions. A run that
/// begins puts that layer into a stage of its own.
ModelDescription model_with_windows() {
  DecoderSettings s;
  s.hidden_size = s.intermediate_size = 64;
  s.num_hidden_layers = 6;
  s.num_attention_heads = s.num_key_value_heads = 8;
  s.head_dim = 8;
  s.rms_norm_eps = 1e-5;
  ModelDescription model = make_llama(s, 1000, 4096).description;
  for (size_t unit = 2; unit < 7; ++unit) model.units[unit].work.window = 64;
  return model;
}

const Sizes kByAverage = {3, 3}, kRecorded = {2, 4};

std::vector<std::string> in_stages(int pp) {
  return {fmt::format("parallel.pp={}", pp), "data.seq_len=4096"};
}

class SavedPartition : public ::testing::Test {
 protected:
  /// Saves a checkpoint of a run with these settings.
  fs::path save(int64_t step, const std::vector<std::string>& sets,
                const Json& numerics) const {
    return save_state(step, to_toml(accepted("", sets).config), numerics);
  }
  fs::path save_state(int64_t step, const std::string& settings,
                      const Json& numerics) const {
    testing::run_ranks(1, [&](comm::Communicator& world) {
      const auto share = testing::flat_share(0, 1);
      testing::save_now(dir_.path(), step, 1, share.tensors, world,
                        {{"version", 2}, {"config", settings}, {"numerics", numerics}});
    });
    return dir_ / fmt::format("step_{:08}", step);
  }
  /// Returns what a start with these settings takes.
  Sizes of_start(std::vector<std::string> sets) const {
    sets.push_back(fmt::format("checkpoint.dir=\"{}\"", dir_.path().string()));
    return partition_of_start(accepted("", sets).config, model_);
  }

  ModelDescription model_ = model_with_windows();
  TempDir dir_;
};

TEST_F(SavedPartition, ARunThatBeginsHasNone) {
  EXPECT_EQ(of_start(in_stages(2)), Sizes());
  save_state(4, "", Json::object());  // imported
  EXPECT_EQ(of_start(in_stages(2)), Sizes());
}

TEST_F(SavedPartition, ARunKeepsWhatItsNewestCheckpointSays) {
  save(4, in_stages(2), {{kPartition, kByAverage}});
  save(5, in_stages(2), {{kPartition, kRecorded}});
  EXPECT_EQ(of_start(in_stages(2)), kRecorded);
  std::vector<std::string> sets = in_stages(2);
  sets.emplace_back("checkpoint.resume=\"never\"");
  EXPECT_EQ(of_start(sets), Sizes());
}

TEST_F(SavedPartition, ACheckpointOfAnOlderVersionHasLayersOfTheAverageCost) {
  save(4, in_stages(2), {{"layout", "pp 2 x dp 1 x cp 1 x tp 1, zero 1"}});
  EXPECT_EQ(of_start(in_stages(2)), kByAverage);
}

TEST_F(SavedPartition, OtherSettingsOfThePipelineCutAnew) {
  save(4, in_stages(2), {{kPartition, kRecorded}});
  EXPECT_EQ(of_start(in_stages(3)), Sizes());
  EXPECT_EQ(of_start(in_stages(1)), Sizes());
  std::vector<std::string> sets = in_stages(2);
  sets.insert(sets.end(), {"parallel.pipeline=interleaved", "parallel.virtual_stages=2"});
  EXPECT_EQ(of_start(sets), Sizes());
}

TEST_F(SavedPartition, TheSettingComesBeforeTheCheckpoint) {
  std::vector<std::string> sets = in_stages(2);
  sets.emplace_back("parallel.partition=[1,5]");
  save(4, in_stages(2), {{kPartition, kRecorded}});
  EXPECT_EQ(of_start(sets), (Sizes{1, 5}));
  // A person who takes the setting out of the file asks for a new cut.
  save(5, sets, {{kPartition, {1, 5}}});
  EXPECT_EQ(of_start(in_stages(2)), Sizes());
}

TEST_F(SavedPartition, ADamagedCheckpointIsPassedOver) {
  save(4, in_stages(2), {{kPartition, kRecorded}});
  const fs::path newest = save(5, in_stages(2), {{kPartition, kByAverage}});
  const fs::path state = newest / Manifest::read(newest).state.name;
  std::string text = read_text(state);
  text[text.find("numerics")] = 'N';
  testing::write_file(state, text);
  EXPECT_EQ(of_start(in_stages(2)), kRecorded);
  EXPECT_EQ(read_state(dir_ / "step_00000004").at("version"), 2);
  EXPECT_THROW(read_state(newest), InputError);
}

TEST_F(SavedPartition, AnotherModelsLayersAreNotTaken) {
  save(4, in_stages(2), {{kPartition, {2, 5}}});
  EXPECT_EQ(of_start(in_stages(2)), Sizes());
}

}  // namespace
}  // namespace longhaul::checkpoint
