#include "longhaul/checkpoint/foreign_forms.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_past.h"
#include "tests/support/checkpoint_model.h"
#include "tests/support/rank_threads.h"

namespace longhaul::checkpoint {
namespace {

using testing::TempDir;
using testing::write_file;

void make_files(const fs::path& dir, std::initializer_list<const char*> files) {
  for (const char* file : files) write_file(dir / file, "x");
}

void make_nxd(const fs::path& step) {
  make_files(step, {"checkpoint", "done", "model/dp_rank_00_tp_rank_00_pp_rank_00.pt",
                    "optim/dp_rank_00_tp_rank_00_pp_rank_00.pt"});
}

void save_ours(const fs::path& dir, int64_t step) {
  testing::run_ranks(1, [&](comm::Communicator& world) {
    testing::save_now(dir, step, 1, testing::flat_share(0, 1).tensors, world, {},
                      testing::side_files());
  });
}

RunConfig config_in(const fs::path& dir) {
  RunConfig config;
  config.run.dir = dir / "run";
  config.checkpoint.dir = dir / "ckpts";
  config.model.config = "models/M";
  return config;
}

struct Form {
  const char* name;  ///< of the directory or file in `ckpts`
  std::initializer_list<const char*> files;
  const char* writer;
  Way way;
  int64_t step;
  const char* typed;  ///< what the advice has, P being the path of `ckpts`
};

const Form kForms[] = {
    {"step_5",
     {"step_5/checkpoint", "step_5/done",
      "step_5/model/dp_rank_00_ep_rank_00_tp_rank_01_pp_rank_00.pt", "step_5/optim/x"},
     "NxD",
     Way::Checkpoint,
     5,
     "`longhaul import P/step_5 --config models/M --format checkpoint --out P-imported`, "
     "then set checkpoint.resume = \"P-imported\""},
    {"step_7",
     {"step_7/done", "step_7/model/tp_rank_00_pp_rank_00/checkpoint.pt"},
     "NxD",
     Way::Weights,
     7,
     "`longhaul import P/step_7 --config models/M --out P-imported`, then set "
     "init.weights = \"P-imported\" in a run whose run.dir and checkpoint.dir"},
    {"llama_v2-100steps",
     {"llama_v2-100steps/tp2-0/.metadata", "llama_v2-100steps/tp2-1/.metadata"},
     "SageMaker",
     Way::Checkpoint,
     100,
     "`longhaul import P/llama_v2-100steps --config"},
    {"llama_v2-90steps",
     {"llama_v2-90steps/.metadata", "llama_v2-90steps/__0_0.distcp"},
     "SageMaker",
     Way::Checkpoint,
     90,
     "--format checkpoint"},
    {"ckpt_28125.pt",
     {"ckpt_28125.pt"},
     "BERT",
     Way::Checkpoint,
     28125,
     "`longhaul import P/ckpt_28125.pt --config"},
    {"step-1000",
     {"step-1000/.metadata", "step-1000/__0_0.distcp"},
     "DCP",
     Way::Checkpoint,
     1000,
     "`longhaul import P/step-1000 --config models/M --format checkpoint"},
    {"",
     {"latest_checkpointed_iteration.txt", "iter_0000005/mp_rank_00/model_optim_rng.pt"},
     "Megatron",
     Way::Converter,
     -1,
     "`longhaul import` does not read"},
    {"iter_0000005",
     {"iter_0000005/mp_rank_00/model_optim_rng.pt"},
     "Megatron",
     Way::Converter,
     5,
     "then set init.weights to that directory"},
    {"iter_0000006",
     {"iter_0000006/.metadata", "iter_0000006/common.pt", "iter_0000006/__0_0.distcp"},
     "Megatron",
     Way::Converter,
     6,
     "AutoBridge"},
    {"checkpoint-500",
     {"checkpoint-500/model.safetensors", "checkpoint-500/trainer_state.json"},
     "Trainer",
     Way::AsItIs,
     500,
     "set init.weights = \"P/checkpoint-500\"; its moments and its step stay behind"},
    {"checkpoint-600",
     {"checkpoint-600/pytorch_model.bin", "checkpoint-600/optimizer.pt"},
     "Trainer",
     Way::Weights,
     600,
     "`longhaul import P/checkpoint-600 --config models/M --out P-imported`"},
    {"checkpoint-700",
     {"checkpoint-700/pytorch_model_fsdp_0/.metadata",
      "checkpoint-700/trainer_state.json"},
     "Trainer",
     Way::Weights,
     700,
     "`longhaul import P/checkpoint-700/pytorch_model_fsdp_0 --config"},
    {"checkpoint-800",
     {"checkpoint-800/latest", "checkpoint-800/zero_to_fp32.py",
      "checkpoint-800/trainer_state.json", "checkpoint-800/global_step800/x"},
     "DeepSpeed",
     Way::OwnScript,
     800,
     "`python3 P/checkpoint-800/zero_to_fp32.py P/checkpoint-800 P-imported-fp32`"},
    {"",
     {"latest", "zero_to_fp32.py", "global_step5/mp_rank_00_model_states.pt"},
     "DeepSpeed",
     Way::OwnScript,
     -1,
     "`longhaul import P-imported-fp32 --config models/M --out P-imported`"},
    {"global_step9",
     {"global_step9/mp_rank_00_model_states.pt"},
     "DeepSpeed",
     Way::OwnScript,
     9,
     "`python3 P/zero_to_fp32.py P P-imported-fp32`"},
};

std::string with_path(std::string text, const std::string& path) {
  for (size_t at = 0; (at = text.find('P', at)) != std::string::npos; at += path.size()) {
    text.replace(at, 1, path);
  }
  return text;
}

TEST(ForeignForms, EachIsToldByNamesAloneAndSaysWhatToType) {
  for (const Form& form : kForms) {
    SCOPED_TRACE(form.name);
    const TempDir dir;
    const RunConfig config = config_in(dir.path());
    make_files(dir / "ckpts", form.files);
    const auto found = find_foreign(dir / "ckpts");
    ASSERT_TRUE(found);
    EXPECT_HAS(found->writer, form.writer);
    EXPECT_EQ(found->way, form.way);
    EXPECT_EQ(step_in_name(form.name).value_or(-1), form.step);
    const std::string typed = with_path(form.typed, (dir / "ckpts").string());
    EXPECT_HAS(foreign_advice(*found, "models/M"), typed);
    const std::string refused = message_of<InputError>([&] { refuse_foreign(config); });
    EXPECT_HAS(refused, typed);
    EXPECT_HAS(refused, "checkpoint.resume = \"never\" begins without it");
    // The path may also name the checkpoint itself, or its directory with a slash at the
    // end.
    const fs::path itself = dir / "ckpts" / form.name;
    for (const fs::path& path :
         {itself, fs::is_directory(itself) ? itself / "" : itself}) {
      ASSERT_TRUE(find_foreign(path)) << path;
      EXPECT_HAS(foreign_advice(*find_foreign(path), "models/M"), typed);
    }
  }
}

TEST(ForeignForms, TheNewestWhoseSaveHasEndedIsTaken) {
  const TempDir dir;
  for (const char* step : {"step_9", "step_10", "step_100"}) make_nxd(dir / step);
  EXPECT_EQ(find_foreign(dir.path())->path, dir / "step_100");
  EXPECT_EQ(find_foreign(dir.path(), 9)->path, dir / "step_9");
  EXPECT_FALSE(find_foreign(dir.path(), 11));
  fs::remove(dir / "step_100/done");
  EXPECT_EQ(find_foreign(dir.path())->path, dir / "step_10");
  for (const char* step : {"step_9", "step_10"}) fs::remove(dir / step / "done");
  EXPECT_EQ(find_foreign(dir.path())->way, Way::Unfinished);
  EXPECT_HAS(foreign_advice(*find_foreign(dir.path())), "there is no file `done`");
}

TEST(ForeignForms, OwnDirectoriesModelsAndDataAreNone) {
  const TempDir dir;
  save_ours(dir / "ckpts", 5);
  save_ours(dir / "ckpts", 6);
  fs::remove(dir / "ckpts/step_00000006" / run::kManifestFile);
  make_files(dir.path(),
             {"checkpoints/x", "captures/step_7/x", "tensorboard/e.1", "config.toml",
              "pretrained_weight/model/dp_rank_00_tp_rank_00_pp_rank_00.pt",
              "model-2/model.safetensors", "model-2/config.json", "latest",
              "ckpt_last.pt", "epoch_3/x"});
  EXPECT_FALSE(find_foreign(dir / "ckpts"));
  EXPECT_FALSE(find_foreign(dir.path()));
  EXPECT_FALSE(find_foreign(dir / "absent"));
  EXPECT_FALSE(find_foreign(dir / "config.toml"));
}

TEST(ForeignForms, AFirstStartAloneIsRefused) {
  const TempDir dir;
  RunConfig config = config_in(dir.path());
  EXPECT_NO_THROW(refuse_foreign(config)) << "nothing is there";
  make_nxd(dir / "ckpts/step_5");
  EXPECT_THROW(refuse_foreign(config), InputError);
  config.checkpoint.resume.kind = ResumeFrom::Kind::Never;
  EXPECT_NO_THROW(refuse_foreign(config));
  config.checkpoint.resume.kind = ResumeFrom::Kind::Latest;
  run::RunPast past = run::RunPast::begin();
  fs::create_directories(config.run.dir);
  past.write(config.run.dir);
  EXPECT_THROW(refuse_foreign(config), InputError) << "that start was refused";
  past.loads = 1;
  past.write(config.run.dir);
  EXPECT_NO_THROW(refuse_foreign(config)) << "the run has begun beside it";
  fs::remove_all(config.run.dir);
  save_ours(dir / "ckpts", 6);
  EXPECT_NO_THROW(refuse_foreign(config)) << "the run has a checkpoint";
}

TEST(ForeignForms, TheRunsOwnDirectoryIsLookedAtToo) {
  const TempDir dir;
  RunConfig config = config_in(dir.path());
  make_files(config.run.dir, {"ckpt_5.pt"});
  EXPECT_HAS(message_of<InputError>([&] { refuse_foreign(config); }),
             fmt::format("--out {}-imported`", config.run.dir.string()));
}

TEST(ForeignForms, AStepOrAPathThatIsTheirsIsRefusedAndOneOfOursIsNot) {
  const TempDir dir;
  RunConfig config = config_in(dir.path());
  make_nxd(dir / "ckpts/step_5");
  save_ours(dir / "ckpts", 6);
  config.checkpoint.resume = {ResumeFrom::Kind::Step, 5, {}};
  EXPECT_HAS(message_of<InputError>([&] { refuse_foreign(config); }), "ckpts/step_5 ");
  config.checkpoint.resume.step = 6;
  EXPECT_NO_THROW(refuse_foreign(config));
  config.checkpoint.resume = {ResumeFrom::Kind::Path, 0, dir / "ckpts/step_5"};
  EXPECT_HAS(message_of<InputError>([&] { refuse_foreign(config); }), "ckpts/step_5 ");
  for (const char* own : {"ckpts", "ckpts/step_00000006", "absent"}) {
    config.checkpoint.resume.path = dir / own;
    EXPECT_NO_THROW(refuse_foreign(config)) << own;
  }
}

TEST(ForeignForms, WeightsOutOfThatDirectoryAreMeant) {
  const TempDir dir;
  RunConfig config = config_in(dir.path());
  make_files(dir / "ckpts/checkpoint-5", {"model.safetensors", "trainer_state.json"});
  config.init.weights = dir / "model";
  EXPECT_THROW(refuse_foreign(config), InputError);
  config.init.weights = dir / "ckpts-2/checkpoint-5";
  EXPECT_THROW(refuse_foreign(config), InputError);
  config.init.weights = dir / "run/../ckpts/checkpoint-5/";
  EXPECT_NO_THROW(refuse_foreign(config));
}

TEST(ForeignForms, TheirStepsAreNeverThinnedOut) {
  const TempDir dir;
  make_nxd(dir / "step_5");
  for (const int64_t step : {6, 7, 8}) save_ours(dir.path(), step);
  std::vector<std::string> skipped;
  EXPECT_EQ(find_latest(dir.path(), &skipped)->step, 8);
  EXPECT_TRUE(skipped.empty());
  EXPECT_EQ(apply_retention(dir.path(), {.keep = 1, .verified = {6, 7, 8}}).size(), 2U);
  EXPECT_TRUE(fs::exists(dir / "step_5/model/dp_rank_00_tp_rank_00_pp_rank_00.pt"));
}

TEST(ForeignForms, AWordThatAShellWouldPartIsQuoted) {
  const TempDir dir;
  make_nxd(dir / "it's $(id) here/step_5");
  const auto found = find_foreign(dir / "it's $(id) here");
  EXPECT_HAS(foreign_advice(*found), "it'\\''s $(id) here/step_5' --config MODEL");
}

TEST(ForeignForms, TheImportLiesBesideTheDirectoryAndItsPathHasASlash) {
  const auto place = [](const char* dir) {
    const std::string advice = foreign_advice({"X", Way::Weights, dir, dir});
    const size_t begin = advice.find("init.weights = ") + 16;
    return advice.substr(begin, advice.find('"', begin) - begin);
  };
  EXPECT_EQ(place("ckpts"), "./ckpts-imported");
  EXPECT_EQ(place("./ckpts/"), "./ckpts-imported");
  EXPECT_EQ(place("runs/../out/ckpts"), "out/ckpts-imported");
  EXPECT_EQ(place("/fsx/ckpts/"), "/fsx/ckpts-imported");
  for (const char* here : {".", "./", ""}) {
    EXPECT_EQ(place(here), fs::current_path().string() + "-imported") << here;
  }
}

TEST(ForeignForms, OnlyTheHighestNumbersOfVeryManyAreLookedInto) {
  const TempDir dir;
  for (int i = 0; i < 400; ++i) fs::create_directory(dir / fmt::format("part_{}", i));
  make_nxd(dir / "step_5");
  EXPECT_FALSE(find_foreign(dir.path())) << "400 higher numbers come first";
  make_nxd(dir / "step_5000");
  EXPECT_EQ(find_foreign(dir.path())->path, dir / "step_5000");
}

}  // namespace
}  // namespace longhaul::checkpoint
