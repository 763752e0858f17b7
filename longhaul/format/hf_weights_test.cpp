#include "longhaul/format/hf_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "longhaul/base/error.h"
#include "tests/support/weights_files.h"

namespace longhaul::format {
namespace {

using testing::TempDir;
using testing::write_file;
using testing::write_safetensors;

std::string index_text(const std::string& map) {
  return R"({"metadata":{"total_size":64},"weight_map":{)" + map + "}}";
}

// Writes two shards with tensors of [2, 4]: a = 0..7 and b = 8..15; c = 100..107.
void make_sharded(const TempDir& dir) {
  write_safetensors(dir / "model-00001-of-00002.safetensors", {"a", "b"}, {2, 4}, 0);
  write_safetensors(dir / "model-00002-of-00002.safetensors", {"c"}, {2, 4}, 100);
  write_file(dir / "model.safetensors.index.json",
             index_text(R"("a":"model-00001-of-00002.safetensors",)"
                        R"("b":"model-00001-of-00002.safetensors",)"
                        R"("c":"model-00002-of-00002.safetensors")"));
}

TEST(HfWeights, AnyBoxOfAnyShardIsReadAndConverted) {
  const TempDir dir;
  make_sharded(dir);
  const HfWeights weights = HfWeights::open(dir.path());
  ASSERT_EQ(weights.tensors().size(), 3U);
  TensorSlice box = TensorSlice::whole("c", {2, 4}, DType::F32);
  box.offset = {1, 1};
  box.extent = {1, 2};
  std::vector<float> out(2);
  weights.read(box, DType::F32, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, (std::vector<float>{105, 106}));
  std::vector<uint16_t> half(2);
  weights.read(box, DType::BF16, std::as_writable_bytes(std::span(half)));
  EXPECT_EQ(half[0], float_to_bf16(105));
  EXPECT_EQ(half[1], float_to_bf16(106));
}

TEST(HfWeights, AMissingShardIsNamed) {
  const TempDir dir;
  make_sharded(dir);
  fs::remove(dir / "model-00002-of-00002.safetensors");
  const std::string message =
      message_of<InputError>([&] { HfWeights::open(dir.path()); });
  EXPECT_HAS(message, "1 of 2 shards are missing: model-00002-of-00002.safetensors");
  const auto shards = list_hf_shards(dir.path());
  ASSERT_EQ(shards.size(), 2U);
  EXPECT_TRUE(shards[0].present);
  EXPECT_FALSE(shards[1].present);
}

TEST(HfWeights, AnIndexThatLeavesItsDirectoryIsRefused) {
  const TempDir dir;
  for (const char* path : {"../outside.safetensors", "/etc/passwd", "x/../../y", ""}) {
    write_file(dir / "model.safetensors.index.json",
               index_text(R"("a":")" + std::string(path) + "\""));
    EXPECT_HAS(message_of<InputError>([&] { HfWeights::open(dir.path()); }),
               "leaves its directory");
  }
}

TEST(HfWeights, BrokenIndicesAreRefused) {
  const TempDir dir;
  for (const char* text : {"{}", "[]", R"({"weight_map":{}})",
                           R"({"weight_map":{"a":1}})", R"({"weight_map":)"}) {
    write_file(dir / "model.safetensors.index.json", text);
    EXPECT_THROW(HfWeights::open(dir.path()), InputError) << text;
  }
}

TEST(HfWeights, AnIndexThatPutsATensorWhereItIsNotIsRefused) {
  const TempDir dir;
  make_sharded(dir);
  write_file(dir / "model.safetensors.index.json",
             index_text(R"("a":"model-00001-of-00002.safetensors",)"
                        R"("b":"model-00001-of-00002.safetensors",)"
                        R"("d":"model-00002-of-00002.safetensors",)"
                        R"("c":"model-00002-of-00002.safetensors")"));
  EXPECT_HAS(message_of<InputError>([&] { HfWeights::open(dir.path()); }), "tensor 'd'");
}

/// Returns the first element of a tensor [2, 4].
float first_of(const HfWeights& weights, const std::string& name) {
  std::vector<float> out(8);
  weights.read(TensorSlice::whole(name, {2, 4}, DType::F32), DType::F32,
               std::as_writable_bytes(std::span(out)));
  return out[0];
}

bool tells(const HfWeights& weights, const std::string& line) {
  return std::ranges::find(weights.ignored(), line) != weights.ignored().end();
}

TEST(HfWeights, TensorsThatTheIndexDoesNotNameArePassedOverAndNamed) {
  const TempDir dir;
  make_sharded(dir);
  write_file(dir / "model.safetensors.index.json",
             index_text(R"("a":"model-00001-of-00002.safetensors",)"
                        R"("c":"model-00002-of-00002.safetensors")"));
  const HfWeights weights = HfWeights::open(dir.path());
  EXPECT_FALSE(weights.has("b"));
  EXPECT_TRUE(tells(weights,
                    "b in model-00001-of-00002.safetensors: model.safetensors.index.json "
                    "does not name the tensor"));
}

TEST(HfWeights, OfTwoCopiesThatOfTheLastFileIsTakenOrBothAreNamed) {
  const TempDir dir;
  write_safetensors(dir / "a.safetensors", {"x", "y"}, {2, 4}, 0);
  write_safetensors(dir / "b.safetensors", {"x", "z"}, {2, 4}, 100);
  const std::string rest = R"(,"y":"a.safetensors","z":"b.safetensors")";
  write_file(dir / "model.safetensors.index.json",
             index_text(R"("x":"b.safetensors")" + rest));
  const HfWeights weights = HfWeights::open(dir.path());
  EXPECT_EQ(first_of(weights, "x"), 100);
  EXPECT_TRUE(tells(weights,
                    "x in a.safetensors: model.safetensors.index.json puts the tensor "
                    "into b.safetensors"));
  write_file(dir / "model.safetensors.index.json",
             index_text(R"("x":"a.safetensors")" + rest));
  EXPECT_HAS(message_of<InputError>([&] { HfWeights::open(dir.path()); }),
             "puts tensor 'x' into a.safetensors, but b.safetensors holds it too");
}

TEST(HfWeights, OfSeveralSetsTheConfigsIsTakenThenTheSingleFileThenTheIndex) {
  const TempDir dir;
  make_sharded(dir);
  fs::create_directory(dir / "other");
  write_safetensors(dir / "other/old.safetensors", {"a"}, {2, 4}, 500);
  EXPECT_EQ(first_of(HfWeights::open(dir.path()), "c"), 100);
  write_safetensors(dir / "model.safetensors", {"a"}, {2, 4}, 300);
  // The choice does not depend on which file is newer.
  fs::last_write_time(
      dir / "model.safetensors",
      fs::last_write_time(dir / "model.safetensors.index.json") - std::chrono::hours(1));
  const HfWeights single = HfWeights::open(dir.path());
  EXPECT_EQ(first_of(single, "a"), 300);
  EXPECT_FALSE(single.has("c"));
  for (const char* name :
       {"model-00001-of-00002.safetensors", "model.safetensors.index.json"}) {
    EXPECT_TRUE(tells(single, std::string(name) + ": the weights are those of "
                                                  "model.safetensors"));
  }
  // The choice is the same if shards of the other set are missing.
  fs::remove(dir / "model-00002-of-00002.safetensors");
  EXPECT_EQ(first_of(HfWeights::open(dir.path()), "a"), 300);
  write_file(dir / "config.json", R"({"transformers_weights": "other/old.safetensors"})");
  const HfWeights named = HfWeights::open(dir.path());
  EXPECT_EQ(first_of(named, "a"), 500);
  EXPECT_TRUE(
      tells(named, "model.safetensors: the weights are those of other/old.safetensors"));
  EXPECT_FALSE(tells(named, "other/: no part of a model"));
  write_file(dir / "config.json",
             R"({"transformers_weights": "model.safetensors.index.json"})");
  EXPECT_HAS(message_of<InputError>([&] { HfWeights::open(dir.path()); }),
             "1 of 2 shards are missing");
  write_file(dir / "config.json", R"({"transformers_weights": null})");
  EXPECT_EQ(first_of(HfWeights::open(dir.path()), "a"), 300);
}

TEST(HfWeights, AConfigThatNamesNoWeightsOfItsDirectoryIsRefused) {
  const TempDir dir;
  write_safetensors(dir / "model.safetensors", {"a"}, {2, 4}, 0);
  const std::pair<const char*, const char*> cases[] = {
      {R"("pytorch_model.bin")", "is neither a"},
      {"5", "transformers_weights is 5"},
      {R"("../model.safetensors")", "leaves its directory"},
      {R"("absent.safetensors")", "absent.safetensors"},
      {R"("absent.safetensors.index.json")", "absent.safetensors.index.json"}};
  for (const auto& [value, message] : cases) {
    write_file(dir / "config.json",
               R"({"transformers_weights": )" + std::string(value) + "}");
    EXPECT_HAS(message_of<InputError>([&] { HfWeights::open(dir.path()); }), message);
  }
}

TEST(HfWeights, ALinkToNothingIsCalledThat) {
  const TempDir dir;
  make_sharded(dir);
  fs::remove(dir / "model-00002-of-00002.safetensors");
  fs::create_symlink("../blobs/1f", dir / "model-00002-of-00002.safetensors");
  const std::string said = "a link to ../blobs/1f, where nothing is";
  EXPECT_HAS(message_of<InputError>([&] { HfWeights::open(dir.path()); }),
             "model-00002-of-00002.safetensors (" + said + ")");
  fs::remove(dir / "model.safetensors.index.json");
  fs::create_symlink("../blobs/1f", dir / "model.safetensors.index.json");
  EXPECT_HAS(message_of<InputError>([&] { HfWeights::open(dir.path()); }),
             "index.json: " + said);
  fs::create_symlink("../blobs/1f", dir / "model.safetensors");
  EXPECT_HAS(message_of<InputError>([&] { HfWeights::open(dir.path()); }),
             "model.safetensors (" + said + ")");
}

TEST(HfWeights, OldBuffersAndPickledCopiesAreIgnoredAndReported) {
  const TempDir dir;
  write_safetensors(dir / "model.safetensors",
                    {"w", "model.layers.0.self_attn.rotary_emb.inv_freq"}, {4}, 0);
  write_file(dir / "pytorch_model.bin", "pickle");
  write_file(dir / "original/consolidated.00.pth", "pickle");
  const HfWeights weights = HfWeights::open(dir.path());
  EXPECT_TRUE(weights.has("w"));
  EXPECT_EQ(weights.tensors().size(), 1U);
  ASSERT_EQ(weights.ignored().size(), 3U);
  EXPECT_HAS(weights.ignored()[0], "inv_freq");
  EXPECT_HAS(weights.ignored()[1], "original/");
  EXPECT_HAS(weights.ignored()[2], "pytorch_model.bin");
}

TEST(HfWeights, WithoutSafetensorsItSaysWhatLiesThere) {
  const TempDir dir;
  EXPECT_HAS(message_of<InputError>([&] { HfWeights::open(dir / "absent"); }),
             "no such file or directory");
  EXPECT_HAS(message_of<InputError>([&] { HfWeights::open(dir.path()); }),
             "an empty directory");
  write_file(dir / "pytorch_model.bin", "pickle");
  EXPECT_HAS(message_of<InputError>([&] { HfWeights::open(dir.path()); }),
             "`longhaul import` makes safetensors of them");
}

TEST(HfWeights, AWrongShapeAnAbsentTensorAndIntegersAreRefused) {
  const TempDir dir;
  make_sharded(dir);
  const HfWeights weights = HfWeights::open(dir.path());
  std::vector<std::byte> out(32);
  EXPECT_HAS(message_of<InputError>([&] {
               weights.read(TensorSlice::whole("a", {4, 2}, DType::F32), DType::F32, out);
             }),
             "'a' has shape [2, 4], expected [4, 2]");
  EXPECT_HAS(message_of<InputError>([&] {
               weights.read(TensorSlice::whole("z", {4, 2}, DType::F32), DType::F32, out);
             }),
             "no tensor 'z'");
  EXPECT_HAS(message_of<InputError>([&] {
               weights.read(TensorSlice::whole("a", {2, 4}, DType::I32), DType::I32, out);
             }),
             "does not convert to I32");
}

}  // namespace
}  // namespace longhaul::format
