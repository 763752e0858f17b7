#include "longhaul/train/history/history.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "longhaul/base/error.h"

namespace longhaul::train {
namespace {

History example() {
  History h;
  h.step = 7;
  h.updates = 6;
  h.counts = optim::UpdateCounts(6, {{"frozen", 0}, {"thawed", 2}, {"too", 2}});
  h.tokens = 12345678901;
  h.batch_hash = 0xfedcba9876543210;
  h.sources = {{"data/wiki", "abc", 40, 1280}, {"synthetic", "def", 2, 64}};
  h.guard = {{0.1, 1.0 / 3.0}, {2.5, 1e-17}, {3, 7}, 1};
  h.validation.note("old", 5, 1.0 / 3.0);
  h.config_toml = "[run]\nsteps = 9\n";
  ScheduleSection rewarmed;
  rewarmed.continue_ = ContinueKind::Rewarm;
  rewarmed.warmup_steps = 3;
  h.schedule = {rewarmed, 1e-3 / 3.0, 9, optim::Junction{5, 1e-4 / 7.0}};
  h.padding_row = 31;
  h.reference = "0123abcd";
  h.model = "{\"rope_theta\": 10000.0}";
  h.fingerprint = {{"threads", 2}, {"layout", "dp 2"}};
  return h;
}

TEST(History, SurvivesStateJson) {
  const History h = History::from_json(example().to_json());
  EXPECT_EQ(h.step, 7);
  EXPECT_EQ(h.updates, 6);
  EXPECT_EQ(h.counts, example().counts);
  EXPECT_EQ(h.tokens, 12345678901);
  EXPECT_EQ(h.batch_hash, 0xfedcba9876543210);
  EXPECT_EQ(h.sources, example().sources);
  EXPECT_EQ(h.guard, example().guard);            // equal to the last bit
  EXPECT_EQ(h.validation, example().validation);  // equal to the last bit
  EXPECT_EQ(h.config_toml, example().config_toml);
  EXPECT_EQ(h.padding_row, 31);
  EXPECT_EQ(h.reference, "0123abcd");
  EXPECT_EQ(h.model, example().model);
  ASSERT_TRUE(h.schedule.has_value());
  EXPECT_EQ(h.schedule->to_json(), example().schedule->to_json());
  EXPECT_EQ(h.schedule->from, example().schedule->from);  // equal to the last bit
  EXPECT_EQ(h.schedule->lr, 1e-3 / 3.0);
  EXPECT_EQ(h.schedule->section.warmup_steps, 3);
  EXPECT_EQ(h.fingerprint, example().fingerprint);
}

TEST(History, OfACheckpointWithoutAScheduleSaysNone) {
  Json older = example().to_json();
  older.erase("schedule");
  EXPECT_FALSE(History::from_json(older).schedule.has_value());
}

TEST(History, OfACheckpointWithoutAGuardBeginsWithAnEmptyOne) {
  Json older = example().to_json();
  older.erase("guard");
  EXPECT_EQ(History::from_json(older).guard, GuardState());
}

TEST(History, OfACheckpointThatDoesNotSayHasNoPaddingRow) {
  Json older = example().to_json();
  older.erase("padding_row");
  EXPECT_EQ(History::from_json(older).padding_row, std::nullopt);
  History none = example();
  none.padding_row.reset();
  EXPECT_TRUE(none.to_json().at("padding_row").is_null());
  EXPECT_EQ(History::from_json(none.to_json()).padding_row, std::nullopt);
}

TEST(History, OfACheckpointWithoutAModelHasNone) {
  Json older = example().to_json();
  older.erase("model");
  EXPECT_EQ(History::from_json(older).model, "");
}

TEST(History, OfACheckpointWithoutCountsOfParametersDoesNotSayThem) {
  Json older = example().to_json();
  older.erase("fewer_updates");
  EXPECT_FALSE(History::from_json(older).counts.has_value());
}

TEST(History, IsReadByOlderProgramsUnlessAParameterHasACountOfItsOwn) {
  History h = example();
  EXPECT_EQ(h.to_json()["version"], 3);
  h.counts = optim::UpdateCounts(6, {{"frozen", 0}});
  EXPECT_EQ(h.to_json()["version"], 2);
}

TEST(History, NamesWhatIsMissingOrFromAnotherVersion) {
  Json missing = example().to_json();
  missing.erase("tokens");
  Json newer = example().to_json();
  newer["version"] = 99;
  Json older = example().to_json();
  older["version"] = 1;
  Json bad = example().to_json();
  bad["batch_hash"] = "zz";
  const auto message = [](const Json& json) -> std::string {
    try {
      History::from_json(json);
    } catch (const Error& error) {
      return fmt::format("{} {}", error.exit_code(), error.what());
    }
    return "";
  };
  // A file that another version wrote is not damaged, and no older checkpoint is to be
  // taken instead.
  EXPECT_THROW(History::from_json(newer), ConfigError);
  EXPECT_THROW(History::from_json(older), ConfigError);
  Json more = example().to_json();
  more["fewer_updates"][0]["updates"] = 7;
  EXPECT_NE(message(more).find("has had 7 updates, of 6"), std::string::npos);
  EXPECT_NE(message(missing).find("tokens"), std::string::npos);
  EXPECT_NE(message(newer).find("version 99"), std::string::npos);
  EXPECT_NE(message(older).find("start a new run from its weights with [init]"),
            std::string::npos);
  EXPECT_NE(message(bad).find("batch_hash"), std::string::npos);
}

}  // namespace
}  // namespace longhaul::train
