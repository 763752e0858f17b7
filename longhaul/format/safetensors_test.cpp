#include "longhaul/format/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "tests/support/weights_files.h"

namespace longhaul::format {
namespace {

using testing::safetensors_text;
using testing::TempDir;
using testing::write_file;

SafetensorsHeader parse(const std::string& text) {
  return parse_safetensors_header(std::as_bytes(std::span(text)), text.size(), "f.st");
}

std::string refusal(const std::string& header, size_t data_bytes) {
  return message_of<InputError>(
      [&] { parse(safetensors_text(header, std::string(data_bytes, '\0'))); });
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const TempDir dir;
  SafetensorsPlan plan;
  plan.add("b", DType::F32, {2, 3});
  plan.add("a", DType::BF16, {3});
  plan.add("empty", DType::F32, {0, 4});
  const std::vector<float> b = {1, 2, 3, 4, 5, 6};
  const std::vector<uint16_t> a = {7, 8, 9};
  SafetensorsWriter writer(dir / "x.safetensors", plan);
  writer.append(std::as_bytes(std::span(b)));
  writer.append(std::as_bytes(std::span(a)));
  const auto hashes = writer.finish();
  EXPECT_EQ(hashes.size(), 1U);

  const SafetensorsFile file = SafetensorsFile::open(dir / "x.safetensors");
  EXPECT_EQ(file.header().metadata.at("format"), "pt");
  EXPECT_EQ(file.header().data_start % 8, 0U);
  ASSERT_EQ(file.header().entries.size(), 3U);
  const SafetensorsEntry* entry = file.header().find("b");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->shape, (std::vector<int64_t>{2, 3}));
  std::vector<float> part(2);
  file.read(*entry, 8, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, (std::vector<float>{3, 4}));
  EXPECT_EQ(file.header().find("nope"), nullptr);
  EXPECT_EQ(hashes[0], hash_hex(read_text(dir / "x.safetensors")));
}

TEST(Safetensors, AWriterThatGotTooFewOrTooManyBytesSaysSo) {
  const TempDir dir;
  SafetensorsPlan plan;
  plan.add("a", DType::F32, {2});
  SafetensorsWriter writer(dir / "x", plan);
  writer.append(std::vector<std::byte>(7));
  EXPECT_THROW(writer.finish(), Error);
  EXPECT_THROW(writer.append(std::vector<std::byte>(2)), Error);
}

TEST(Safetensors, ATruncatedFileNamesTensorAndBytes) {
  const TempDir dir;
  testing::write_safetensors(dir / "x", {"a", "b"}, {4}, 0);
  std::string text = read_text(dir / "x");
  write_file(dir / "cut", text.substr(0, text.size() - 1));
  const auto open = [&] { SafetensorsFile::open(dir / "cut"); };
  const std::string message = message_of<InputError>(open);
  EXPECT_HAS(message, (dir / "cut").string());
  EXPECT_HAS(message, "tensor 'b'");
  EXPECT_HAS(message, "truncated");
  EXPECT_HAS(message,
             fmt::format("{} B of {} B are there", text.size() - 1, text.size()));
  EXPECT_HAS(message, "copy or download it again");
  // Every shorter length is refused too, without reading past the end.
  for (size_t n = 0; n < text.size(); n += 3) {
    write_file(dir / "cut", text.substr(0, n));
    EXPECT_THROW(open(), InputError) << n;
  }
}

TEST(Safetensors, WhatStandsInItsPlaceAfterAnIncompleteDownloadIsNamed) {
  const TempDir dir;
  const auto problem = [&](const std::string& text) {
    write_file(dir / "x", text);
    return message_of<InputError>([&] { SafetensorsFile::open(dir / "x"); });
  };
  EXPECT_HAS(problem("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
             "Git LFS pointer");
  EXPECT_HAS(problem("<!DOCTYPE html><html>"), "a web page");
}

TEST(Safetensors, AHeaderLengthPastTheEndIsRefusedBeforeAnythingIsAllocated) {
  std::string text = safetensors_text("{}", "");
  text[0] = 100;
  EXPECT_HAS(message_of<InputError>([&] { parse(text); }),
             "header length is 100, but the file ends 2 bytes after it");
  for (size_t i = 0; i < 8; ++i) text[i] = '\xff';
  EXPECT_HAS(message_of<InputError>([&] { parse(text); }), "more than the limit");
  EXPECT_HAS(message_of<InputError>([&] { parse("1234"); }), "4 bytes");
  EXPECT_HAS(message_of<InputError>([&] { parse(""); }), "0 bytes");
}

TEST(Safetensors, OverlapAndHolesAreNamed) {
  const std::string overlap =
      refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
              R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
              6);
  EXPECT_HAS(overlap, "'a' and 'b' overlap");
  EXPECT_HAS(refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", 4),
             "before tensor 'a' belong to no tensor");
  EXPECT_HAS(refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 4),
             "2 bytes after the last tensor");
}

TEST(Safetensors, DuplicateNamesAreRefused) {
  EXPECT_HAS(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                     R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                     2),
             "stands twice");
}

TEST(Safetensors, BytesThatDoNotFitShapeAndDtypeAreRefused) {
  const std::string message =
      refusal(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}})", 20);
  EXPECT_HAS(message, "[2, 3] of F32 takes 24 bytes");
  EXPECT_HAS(message, "give it 20");
  EXPECT_HAS(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1),
             "run backwards");
}

TEST(Safetensors, OverflowingShapesAndNumbersAreRefused) {
  EXPECT_HAS(refusal(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],)"
                     R"("data_offsets":[0,0]}})",
                     0),
             "more than 2^63 bytes");
  EXPECT_HAS(refusal(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})", 0),
             "shape holds -1");
  EXPECT_HAS(refusal(R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,0]}})", 0),
             "shape holds 1.5");
  EXPECT_HAS(refusal(R"({"a":{"dtype":"U8","shape":[1],)"
                     R"("data_offsets":[0,18446744073709551615]}})",
                     1),
             "data_offsets holds 18446744073709551615");
  EXPECT_HAS(refusal(R"({"a":{"dtype":"U8","shape":[1e999],"data_offsets":[0,0]}})", 0),
             "shape holds 1e999");
}

TEST(Safetensors, UnknownDtypesFieldsAndFormsAreRefused) {
  EXPECT_HAS(refusal(R"({"a":{"dtype":"F7","shape":[1],"data_offsets":[0,1]}})", 1),
             "unknown dtype 'F7'");
  EXPECT_HAS(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1),
             "unknown field 'x'");
  EXPECT_HAS(refusal(R"({"a":{"dtype":"U8","shape":[1]}})", 1), "no 'data_offsets'");
  EXPECT_HAS(refusal(R"({"a":7})", 0), "not an object");
  EXPECT_HAS(refusal(R"({"__metadata__":{"k":1}})", 0), "__metadata__ 'k'");
  EXPECT_HAS(refusal("[1]", 0), "does not start with '{'");
  EXPECT_HAS(refusal(R"({"a":)", 0), "not valid JSON at byte");
}

TEST(Safetensors, DeepJsonIsRefused) {
  std::string deep =
      R"({"a":)" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_HAS(refusal(deep, 0), "nested deeper");
}

TEST(Safetensors, AnEmptyTensorAtAnEdgeOverlapsNothing) {
  const SafetensorsHeader header =
      parse(safetensors_text(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                             R"("e":{"dtype":"F32","shape":[0],"data_offsets":[2,2]},)"
                             R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                             "xyz"));
  EXPECT_EQ(header.entries.size(), 3U);
}

}  // namespace
}  // namespace longhaul::format
