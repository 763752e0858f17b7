#include "apps/inputs/run_inputs.h"

#include "tests/support/scratch_directory.h"

namespace longhaul::apps {
namespace {

TEST(RunInputs, WhatIsReadAndNotHereIsNamedByItsKeyAndWhatIsWrittenIsNot) {
  const TestDirectory scratch;
  const fs::path none = scratch / "none";
  RunConfig config;
  config.run.dir = none / "run";
  config.run.device_plugin = none / "plugin.so";
  config.run.hardware = none / "machine.json";
  config.run.golden.emplace().file = none / "loss.txt";
  config.model.config = none / "model";
  config.init.weights = "s3://bucket/weights";
  config.data.train.resize(1);
  config.data.train[0].path.entries = {scratch.path(), none / "a*", none / "b"};
  config.data.cache = none / "cache";
  config.checkpoint.resume = {ResumeFrom::Kind::Path, 0, none / "before"};
  config.log.tensorboard_dir = none / "tensorboard";
  const std::string here = " is not on this machine";
  const auto line = [&](const std::string& key, const char* name) {
    return key + ": " + (none / name).string() + here;
  };
  EXPECT_EQ(
      missing_inputs(config),
      (std::vector<std::string>{
          line("run.device_plugin", "plugin.so"), line("run.hardware", "machine.json"),
          line("run.golden.file", "loss.txt"), line("model.config", "model"),
          "data.train: [data] " + (none / "a*").string() +
              ": the pattern matches nothing, on this machine",
          line("data.train", "b"), line("checkpoint.resume", "before")}));
}

}  // namespace
}  // namespace longhaul::apps
