#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/hf/hf_export.h"
#include "longhaul/checkpoint/hf/model_check.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/comm/backend.h"
#include "longhaul/format/hf_weights.h"
#include "longhaul/format/safetensors.h"
#include "tests/support/checkpoint_model.h"
#include "tests/support/rank_threads.h"

namespace longhaul::checkpoint {
namespace {

using testing::element;
using testing::flat_share;
using testing::small_model;
using testing::TempDir;
using testing::write_file;

void save_run(const fs::path& run, int64_t step) {
  testing::run_ranks(3, [&](comm::Communicator& world) {
    testing::save_now(run / "checkpoints", step, 1,
                      testing::flat_share(world.rank(), 3).tensors, world, {},
                      testing::side_files());
  });
}

std::vector<float> weight_values(const format::TensorSlice& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = element(kWeight, tensor.name, static_cast<int64_t>(i));
  }
  return values;
}

std::vector<float> read_whole(const WeightsSource& source,
                              const format::TensorSlice& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.num_elements()));
  source.read(tensor, format::DType::F32, std::as_writable_bytes(std::span(out)));
  return out;
}

TEST(WeightsSource, ARunItsCheckpointAndItsExportHoldTheSameWeights) {
  const TempDir dir;
  save_run(dir / "run", 4);
  save_run(dir / "run", 12);
  const auto run = WeightsSource::open(dir / "run");
  EXPECT_EQ(run->source().path, dir / "run/checkpoints/step_00000012");
  EXPECT_HAS(run->source().note, "newest valid checkpoint is step_00000012");
  EXPECT_EQ(model_files_dir(run->source()), dir / "run/checkpoints/step_00000012/a1_hf");
  EXPECT_EQ(run->config_path(), model_files_dir(run->source()) / "config.json");
  const ExportReport report = export_hf(*run, dir / "hf");
  EXPECT_EQ(report.shards, 1);
  EXPECT_EQ(report.tensors, 3U);
  const auto exported = WeightsSource::open(dir / "hf");
  EXPECT_EQ(exported->source().kind, ModelSource::Kind::HfDirectory);
  for (const format::TensorSlice& tensor : small_model()) {
    EXPECT_EQ(read_whole(*run, tensor), weight_values(tensor));
    EXPECT_EQ(read_whole(*exported, tensor), weight_values(tensor));
  }
  exported->check(small_model());
}

void flip_last_byte(const fs::path& file) {
  std::string text = read_text(file);
  text.back() = static_cast<char>(text.back() ^ 1);
  write_file(file, text);
}

/// Returns the checkpoints that were tried, whole or damaged, and the lines that were
/// told.
std::pair<std::vector<std::string>, std::vector<std::string>> tried(
    const fs::path& named) {
  std::vector<std::string> names;
  std::vector<std::string> lines;
  with_fall_back(
      named,
      [&](const fs::path& path) {
        const auto source = WeightsSource::open(path);
        names.push_back(source->source().path.filename().string());
        for (const format::TensorSlice& tensor : small_model())
          read_whole(*source, tensor);
      },
      [&](const std::string& line) { lines.push_back(line); });
  return {names, lines};
}

TEST(FallBack, OfARunWhoseNewestIsDamagedInsideTheOneBeforeIsTaken) {
  const TempDir dir;
  for (const int64_t step : {4, 8, 12}) save_run(dir / "run", step);
  EXPECT_EQ(tried(dir / "run").second, std::vector<std::string>());
  const fs::path steps = dir / "run/checkpoints";
  flip_last_byte(steps / "step_00000012/a1_rank_00000.safetensors");
  flip_last_byte(steps / "step_00000008/a1_rank_00002.safetensors");
  const auto [names, lines] = tried(dir / "run");
  EXPECT_EQ(names, (std::vector<std::string>{"step_00000012", "step_00000008",
                                             "step_00000004"}));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_HAS(lines[0], "step_00000012 is damaged: [checkpoint]");
  EXPECT_HAS(lines[0], "taking " + (steps / "step_00000008").string());
}

TEST(FallBack, ACheckpointThatWasNamedItselfIsNeverReplaced) {
  const TempDir dir;
  for (const int64_t step : {4, 8}) save_run(dir / "run", step);
  const fs::path step = dir / "run/checkpoints/step_00000008";
  flip_last_byte(step / "a1_rank_00000.safetensors");
  EXPECT_HAS(message_of<InputError>([&] { tried(step); }), "block 0");
}

TEST(FallBack, ErrorsThatAreNotOfTheFilesGoThrough) {
  const TempDir dir;
  for (const int64_t step : {4, 8}) save_run(dir / "run", step);
  int calls = 0;
  const auto use = [&](const fs::path&) {
    ++calls;
    throw InputError("model", "too short");
  };
  EXPECT_THROW(with_fall_back(dir / "run", use, [](const std::string&) {}), InputError);
  EXPECT_EQ(calls, 1);
}

TEST(WeightsSource, TheWordRandomIsAnsweredWithHowRandomWeightsAreHad) {
  const std::string message =
      message_of<InputError>([] { WeightsSource::open("random"); });
  EXPECT_HAS(message, "leave init.weights out");
}

TEST(WeightsSource, MissingUnexpectedAndMisshapenTensorsAreNamedTogether) {
  const TempDir dir;
  save_run(dir / "run", 1);
  const auto source = WeightsSource::open(dir / "run");
  std::vector<format::TensorSlice> expected = small_model();
  source->check(expected);
  expected[0] = format::TensorSlice::whole("embed.weight", {14, 8}, format::DType::F32);
  expected[1].name = "final.weight";
  const std::string message = message_of<InputError>([&] { source->check(expected); });
  EXPECT_HAS(message, "embed.weight: expected [14, 8], found [13, 8]");
  EXPECT_HAS(message, "1 missing: final.weight [5]");
  EXPECT_HAS(message, "1 unexpected: norm.weight [5]");
  expected = small_model();
  expected.erase(expected.begin());
  source->check(expected, {"embed.weight"});
}

TEST(WeightsSource, WhatIsNoModelIsNamedForWhatItIs) {
  const TempDir dir;
  write_file(dir / "run/config.toml", "");
  EXPECT_HAS(message_of<InputError>([&] { WeightsSource::open(dir / "run"); }),
             "no checkpoint yet");
  EXPECT_HAS(message_of<InputError>([&] { WeightsSource::open(dir / "absent"); }),
             "no such");
  EXPECT_HAS(
      message_of<InputError>([&] { WeightsSource::open(dir / "run/config.toml"); }),
      "is a file");
  save_run(dir / "broken", 3);
  fs::resize_file(dir / "broken/checkpoints/step_00000003/a1_state.json", 1);
  EXPECT_HAS(message_of<InputError>([&] { WeightsSource::open(dir / "broken"); }),
             "no valid checkpoint");
}

TEST(Export, ShardsIndexDtypeAndSideFilesAreComplete) {
  const TempDir dir;
  save_run(dir / "run", 1);
  const auto run = WeightsSource::open(dir / "run");
  ExportOptions options;
  options.dtype = format::DType::BF16;
  options.shard_bytes = 200;
  uint64_t last = 0;
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_LE(done, total);
    last = done;
  };
  const ExportReport report = export_hf(*run, dir / "hf", options);
  EXPECT_EQ(report.shards, 2);
  EXPECT_EQ(report.bytes, 2U * (13 * 8 + 5 + 72));
  EXPECT_EQ(last, report.bytes);
  const Json index = read_json(dir / "hf/model.safetensors.index.json");
  EXPECT_EQ(index.at("metadata").at("total_size"), report.bytes);
  EXPECT_EQ(index.at("weight_map").at("embed.weight"),
            "model-00001-of-00002.safetensors");
  EXPECT_EQ(index.at("weight_map").at("norm.weight"), "model-00002-of-00002.safetensors");
  EXPECT_EQ(read_json(dir / "hf/config.json").at("torch_dtype"), "bfloat16");
  EXPECT_EQ(read_text(dir / "hf/LICENSE"), "free");
  EXPECT_TRUE(fs::exists(dir / "hf/tokenizer.json"));
  const format::HfWeights weights = format::HfWeights::open(dir / "hf");
  for (const format::TensorSlice& tensor : small_model()) {
    std::vector<uint16_t> out(static_cast<size_t>(tensor.num_elements()));
    weights.read(tensor, format::DType::BF16, std::as_writable_bytes(std::span(out)));
    const std::vector<float> expected = weight_values(tensor);
    for (size_t i = 0; i < out.size(); ++i)
      EXPECT_EQ(out[i], format::float_to_bf16(expected[i]));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()),
            2);
}

TEST(Export, ADirectoryWithContentIsNeverTouched) {
  const TempDir dir;
  save_run(dir / "run", 1);
  write_file(dir / "hf/mine.txt", "keep");
  const auto run = WeightsSource::open(dir / "run");
  EXPECT_HAS(message_of<InputError>([&] { export_hf(*run, dir / "hf"); }), "not empty");
  EXPECT_EQ(read_text(dir / "hf/mine.txt"), "keep");
}

TEST(Export, AFailureLeavesNothing) {
  const TempDir dir;
  save_run(dir / "run", 1);
  const fs::path step = dir / "run/checkpoints/step_00000001";
  const auto run = WeightsSource::open(dir / "run");
  std::string text = read_text(step / "a1_rank_00001.safetensors");
  text.back() = static_cast<char>(text.back() ^ 1);
  write_file(step / "a1_rank_00001.safetensors", text);
  EXPECT_THROW(export_hf(*run, dir / "hf"), InputError);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()),
            1);
}

TEST(Export, ThreadsAndRanksWriteTheSameFilesAsOne) {
  const TempDir dir;
  save_run(dir / "run", 1);
  ExportOptions options;
  options.shard_bytes = 100;  // so small that every tensor has a shard of its own
  options.threads = 1;
  const auto alone = WeightsSource::open(dir / "run");
  EXPECT_EQ(export_hf(*alone, dir / "one", options).shards, 3);
  options.threads = 3;
  export_hf(*alone, dir / "threads", options);
  testing::run_ranks(2, [&](comm::Communicator& world) {
    const auto source = WeightsSource::open(dir / "run", world);
    const ExportReport report = export_hf(*source, dir / "ranks", options, world);
    EXPECT_EQ(report.shards, 3);
  });
  for (const auto& file : fs::directory_iterator(dir / "one")) {
    const std::string name = file.path().filename().string();
    EXPECT_EQ(read_text(dir / "threads" / name), read_text(file.path())) << name;
    EXPECT_EQ(read_text(dir / "ranks" / name), read_text(file.path())) << name;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()),
            4);
}

TEST(Export, AFailureOfOneRankIsTheSameErrorOnAllAndLeavesNothing) {
  const TempDir dir;
  save_run(dir / "run", 1);
  const fs::path file = dir / "run/checkpoints/step_00000001/a1_rank_00001.safetensors";
  std::string text = read_text(file);
  text.back() = static_cast<char>(text.back() ^ 1);
  write_file(file, text);
  std::vector<std::string> messages(3);
  testing::run_ranks(3, [&](comm::Communicator& world) {
    const auto source = WeightsSource::open(dir / "run", world);
    ExportOptions options;
    options.shard_bytes = 100;
    messages[static_cast<size_t>(world.rank())] =
        message_of<InputError>([&] { export_hf(*source, dir / "hf", options, world); });
    message_of<InputError>([&] { export_hf(*source, dir / "run", options, world); });
  });
  EXPECT_HAS(messages[0], file.string() + ": block 0");
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_EQ(messages[0], messages[2]);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()),
            1);
}

TEST(Export, ARunThatDeletesItsCheckpointMeanwhileIsExportedAsItWas) {
  const TempDir dir;
  save_run(dir / "run", 1);
  const fs::path checkpoints = dir / "run/checkpoints";
  const auto held =
      WeightsSource::open(dir / "run", *comm::self_world(), WeightsSource::Files::Held);
  // Deletes the checkpoints in the middle of the export, as retention may do.
  ExportOptions options;
  options.threads = 1;
  options.progress = [&](uint64_t, uint64_t) { fs::remove_all(checkpoints); };
  export_hf(*held, dir / "hf", options);
  const auto exported = WeightsSource::open(dir / "hf");
  for (const format::TensorSlice& tensor : small_model()) {
    EXPECT_EQ(read_whole(*exported, tensor), weight_values(tensor));
  }
  EXPECT_EQ(read_text(dir / "hf/LICENSE"), "free");
}

/// Writes a Hugging Face directory with only a [5, 3] embedding and a head of these
/// values.
ModelConfig write_tied(const fs::path& dir, const std::vector<float>& head) {
  fs::create_directories(dir);
  format::SafetensorsPlan plan;
  plan.add("lm_head.weight", format::DType::F32, {5, 3});
  plan.add("model.embed_tokens.weight", format::DType::F32, {5, 3});
  format::SafetensorsWriter writer(dir / "model.safetensors", plan);
  std::vector<float> embedding(15);
  for (size_t i = 0; i < embedding.size(); ++i) embedding[i] = static_cast<float>(i);
  for (const format::SafetensorsEntry& entry : plan.entries) {
    writer.append(
        std::as_bytes(std::span(entry.name == "lm_head.weight" ? head : embedding)));
  }
  writer.finish();
  ModelConfig config;
  config.description.tied = TiedHead{"model.embed_tokens.weight", "lm_head.weight"};
  config.source_path = dir / "config.json";
  return config;
}

TEST(TiedHead, OneThatDiffersFromTheEmbeddingIsRefused) {
  const TempDir dir;
  std::vector<float> head(15);
  for (size_t i = 0; i < head.size(); ++i) head[i] = static_cast<float>(i);
  ModelConfig config = write_tied(dir / "same", head);
  EXPECT_NO_THROW(check_tied_head(*WeightsSource::open(dir / "same"), config));
  head[3 * 4 + 1] = 0.5F;
  config = write_tied(dir / "other", head);
  const auto source = WeightsSource::open(dir / "other");
  const std::string message =
      message_of<InputError>([&] { check_tied_head(*source, config); });
  EXPECT_HAS(message, "tie_word_embeddings is true in " + config.source_path.string() +
                          ", but the files hold an output projection of its own: "
                          "lm_head.weight[4, 1] is 0.5, but the same element of "
                          "model.embed_tokens.weight is 13");
  config.description.tied.reset();
  EXPECT_NO_THROW(check_tied_head(*source, config));
}

}  // namespace
}  // namespace longhaul::checkpoint
