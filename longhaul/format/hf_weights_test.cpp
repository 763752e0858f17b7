#include "longhaul/format/hf_weights.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/format/test_files.h"

namespace longhaul {
namespace {

using testing::message_of;
using testing::TempDir;
using testing::write_file;
using testing::write_safetensors;

std::string index_text(const std::string& map) {
  return R"({"metadata":{"total_size":64},"weight_map":{)" + map + "}}";
}

// Two shards of [2, 4]: a = 0..7, b = 8..15; c = 100..107.
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

TEST(HfWeights, IndexAndShardsMustAgree) {
  const TempDir dir;
  make_sharded(dir);
  write_file(dir / "model.safetensors.index.json",
             index_text(R"("a":"model-00001-of-00002.safetensors",)"
                        R"("c":"model-00002-of-00002.safetensors")"));
  EXPECT_HAS(message_of<InputError>([&] { HfWeights::open(dir.path()); }),
             "tensor 'b', which model.safetensors.index.json puts nowhere");
  write_file(dir / "model.safetensors.index.json",
             index_text(R"("a":"model-00001-of-00002.safetensors",)"
                        R"("b":"model-00001-of-00002.safetensors",)"
                        R"("d":"model-00002-of-00002.safetensors",)"
                        R"("c":"model-00002-of-00002.safetensors")"));
  EXPECT_HAS(message_of<InputError>([&] { HfWeights::open(dir.path()); }), "tensor 'd'");
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

TEST(HfWeights, SideFilesAreConfigTokenizerAndLicences) {
  const TempDir dir;
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json",
                           "LICENSE.txt", "USE_POLICY.md", "model.py", "optimizer.pt"}) {
    write_file(dir / name, "{}");
  }
  EXPECT_EQ(hf_side_files(dir.path()),
            (std::vector<std::string>{"LICENSE.txt", "USE_POLICY.md", "config.json",
                                      "tokenizer.json", "tokenizer_config.json"}));
}

}  // namespace
}  // namespace longhaul
