#include "apps/inputs/data_places.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::apps {
namespace {

class DataPlaces : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"a", "a-val", "b"}) fs::create_directories(root() / name);
    fs::create_directory_symlink(root() / "a-val", root() / "link");
  }
  fs::path root() const { return dir_.path() / "data"; }

  std::vector<std::string> met_twice(const std::string& train,
                                     const std::string& validation) {
    const std::string place = root().string();
    const auto whole = [&](const std::string& name) { return place + "/" + name; };
    const std::string text =
        "[run]\ndir = \"runs/mine\"\nsteps = 10\n[model]\nconfig = \"m/config.json\"\n"
        "[data]\nseq_len = 8\ntrain = [{ path = \"" +
        whole(train) + "\" }]\nvalidation = [{ name = \"v\", path = \"" +
        whole(validation) + "\" }]\n[batch]\nglobal_size = 1\n[optimizer]\nlr = 1e-3\n";
    return places_met_twice(parse_run_config(text, "run.toml").config);
  }

  TestDirectory dir_;
};

TEST_F(DataPlaces, ValidationIsFoundInTheTrainingDataByAnySpelling) {
  for (const char* train :
       {"a-val", "a-val/", "../data/a-val", "a*", "link", "[a]-val"}) {
    const auto warnings = met_twice(train, "a-val");
    ASSERT_EQ(warnings.size(), 1u) << train;
    EXPECT_HAS(warnings[0], "data.validation \"v\" is also trained on");
  }
  EXPECT_EQ(met_twice("a*", "*-val").size(), 1u);
  EXPECT_TRUE(met_twice("[ab]", "a-val").empty());
  EXPECT_TRUE(met_twice("nothing*", "a-val").empty()) << "the start says so";
}

TEST_F(DataPlaces, AFileThatIsNotHereHasOnePlaceToo) {
  EXPECT_EQ(place_of("none/x/../y/"), place_of("./none/y"));
  EXPECT_EQ(met_twice("gone/", "./gone").size(), 1u);
  EXPECT_EQ(met_twice("link/../link", "a-val").size(), 1u);
}

TEST_F(DataPlaces, AFileOfValidationIsFoundInADirectoryOfTheTrainingData) {
  for (const char* name : {"a/1.jsonl", "a/2.jsonl", "b/3.jsonl"}) {
    write_file(root() / name, "{\"input_ids\": [1, 2]}\n");
  }
  fs::create_symlink(root() / "a/2.jsonl", root() / "b/4.jsonl");
  const std::vector<std::pair<const char*, const char*>> met = {
      {"a", "a/2.jsonl"}, {"a/2.jsonl", "a"}, {"a/*.jsonl", "a"}, {"a", "b"}};
  for (const auto& [train, validation] : met) {
    const auto warnings = met_twice(train, validation);
    ASSERT_EQ(warnings.size(), 1u) << train << " " << validation;
    EXPECT_HAS(warnings[0], "data.validation \"v\" has files that are also trained on (");
  }
  EXPECT_TRUE(met_twice("a", "b/3.jsonl").empty());
  EXPECT_TRUE(met_twice("a/1.jsonl", "a/2.jsonl").empty());
}

TEST(DataAddresses, AnAddressHasOnePlaceToo) {
  for (const char* text :
       {"s3://corpus/store/", "s3:/corpus/store", "s3://corpus/store//"}) {
    EXPECT_EQ(place_of(text), place_of("s3://corpus/store")) << text;
  }
  EXPECT_NE(place_of("s3://corpus/store"), place_of("s3://corpus/store-val"));
  EXPECT_EQ(place_of("s3://c//x"), "s3://c//x") << "the start says what is wrong";
  RunConfig config;
  config.data.train.resize(2);
  config.data.train[0].path.entries = {"s3://corpus/store"};
  config.data.train[1].path.entries = {"s3://corpus/store/"};
  config.data.validation.resize(1);
  config.data.validation[0].path.entries = {"s3://corpus/store/"};
  const auto warnings = places_met_twice(config);
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_HAS(warnings[0], "data.train lists s3://corpus/store/ twice");
  EXPECT_HAS(warnings[1], "is also trained on");
}

TEST(DataAddresses, OnlyFilesOfReadyIdsAreFoundByAPattern) {
  const auto problem = [](const char* train, const char* model) {
    RunConfig config;
    config.model.config = model;
    config.data.train.resize(1);
    config.data.train[0].path.entries = {train};
    try {
      refuse_patterns(config);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const char* train : {"s3://corpus/store", "s3://corpus/*.jsonl.gz", "data/st*",
                            "s3://corpus/day=1/?.parquet"}) {
    EXPECT_EQ(problem(train, "s3://corpus/model"), "") << train;
  }
  for (const char* train : {"s3://corpus/st*", "s3://corpus/sto?e", "s3://corpus/[ab]",
                            "s3://corpus/*.txt", "s3://corpus/s_*.hdf5"}) {
    EXPECT_HAS(problem(train, "model"),
               std::string("data.train: ") + train + ": patterns of addresses");
  }
  EXPECT_HAS(problem("store", "s3://corpus/m*"),
             "model.config: s3://corpus/m*: patterns");
}

}  // namespace
}  // namespace longhaul::apps
