#include "longhaul/format/gguf.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::format {
namespace {

GgufValues some_values() {
  return {{"general.architecture", std::string("llama")},
          {"a.count", uint32_t{7}},
          {"a.signed", int32_t{-7}},
          {"a.eps", 0.5F},
          {"a.flag", true},
          {"a.flags", std::vector<bool>{true, false}},
          {"a.tokens", std::vector<std::string>{"x", "", "yz"}},
          {"a.kinds", std::vector<int32_t>{1, 3}},
          {"a.scores", std::vector<float>{0.25F}}};
}

std::vector<GgufTensor> some_tensors() {
  return {{"norm.weight", {5}, GgufType::F32},
          {"table.weight", {3, 2}, GgufType::BF16},
          {"rows.weight", {2, 3, 64}, GgufType::Q8_0}};
}

/// Returns a whole file, with data of zeros.
std::string some_file() {
  std::vector<GgufTensor> tensors = some_tensors();
  std::string file = gguf_header_bytes(some_values(), tensors);
  const GgufTensor& last = tensors.back();
  file.resize(file.size() + last.offset + (last.bytes() + 31) / 32 * 32);
  return file;
}

GgufHeader parsed(const std::string& file) {
  return parse_gguf(std::as_bytes(std::span(file)), "f.gguf");
}

std::string refusal_of(const std::string& file) {
  return message_of<InputError>([&] { parsed(file); });
}

template <class T>
std::string patched(std::string file, size_t at, T value) {
  std::memcpy(file.data() + at, &value, sizeof(T));
  return file;
}

/// Returns the place of the byte behind a name in the file.
size_t behind(const std::string& file, const std::string& name) {
  const size_t at = file.find(name);
  EXPECT_NE(at, std::string::npos) << name;
  return at + name.size();
}

TEST(Gguf, WhatIsWrittenIsReadBack) {
  const TestDirectory dir;
  GgufWriter writer(dir / "new/x.gguf", some_values(), some_tensors());
  for (const GgufTensor& tensor : writer.tensors()) {
    const std::vector<std::byte> bytes(tensor.bytes(), std::byte{0x41});
    writer.append(std::span(bytes).first(1));
    writer.append(std::span(bytes).subspan(1));
  }
  EXPECT_FALSE(fs::exists(dir / "new/x.gguf"));
  writer.finish();
  const std::string file = read_text(dir / "new/x.gguf");
  EXPECT_EQ(file.size(), writer.file_size());
  const GgufHeader header = parsed(file);
  EXPECT_EQ(header.data_start % kGgufAlignment, 0U);
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[2].shape, (std::vector<int64_t>{2, 3, 64}));
  EXPECT_EQ(header.tensors[2].bytes(), 6 * 2 * 34U);
  EXPECT_EQ(header.tensors[1].offset, 32U);
  EXPECT_EQ(file.substr(header.data_start, 20), std::string(20, 'A'));
  EXPECT_EQ(file[header.data_start + 20], '\0');
  const GgufValues& values = header.values;
  EXPECT_EQ(*find_value(values, "a.count"), GgufValue(uint32_t{7}));
  EXPECT_EQ(*find_value(values, "a.signed"), GgufValue(int32_t{-7}));
  EXPECT_EQ(*find_value(values, "a.eps"), GgufValue(0.5F));
  EXPECT_EQ(*find_value(values, "a.flag"), GgufValue(true));
  EXPECT_EQ(*find_value(values, "a.flags"), GgufValue(std::vector<bool>{true, false}));
  EXPECT_EQ(*find_value(values, "a.kinds"), GgufValue(std::vector<int32_t>{1, 3}));
  EXPECT_EQ(*find_value(values, "a.scores"), GgufValue(std::vector<float>{0.25F}));
  EXPECT_EQ(*find_value(values, "a.tokens"), GgufValue(GgufUnread{3}));
  EXPECT_EQ(find_value(values, "a.absent"), nullptr);
}

TEST(Gguf, AFileThatIsNotFinishedOrStandsThereAlreadyIsNotTouched) {
  const TestDirectory dir;
  {
    GgufWriter writer(dir / "x", {}, some_tensors());
    writer.append(std::vector<std::byte>(20));
    EXPECT_THROW(writer.append(std::vector<std::byte>(13)), Error);
    EXPECT_THROW(writer.finish(), Error);
  }
  EXPECT_TRUE(paths_in(dir.path()).empty());
  write_file(dir / "x", "mine");
  EXPECT_HAS(message_of<InputError>([&] { GgufWriter(dir / "x", {}, {}); }),
             "exists already");
  EXPECT_EQ(read_text(dir / "x"), "mine");
}

TEST(Gguf, ANameThatIsTooLongForTheFormatIsRefused) {
  std::vector<GgufTensor> tensors = {{std::string(64, 'n'), {1}, GgufType::F32}};
  EXPECT_HAS(message_of<InputError>([&] { gguf_header_bytes({}, tensors); }),
             "has 64 bytes; GGUF holds at most 63");
}

/// The padding behind the last tensor alone may be absent.
TEST(Gguf, AFileThatIsCutAnywhereIsRefusedWithTheByte) {
  const std::string file = some_file();
  const GgufHeader header = parsed(file);
  const GgufTensor& last = header.tensors.back();
  const size_t end = header.data_start + last.offset + last.bytes();
  for (size_t size = 0; size < end; ++size) {
    const std::string said = refusal_of(file.substr(0, size));
    ASSERT_TRUE(said.starts_with("[gguf] f.gguf: byte ")) << size << ": " << said;
    const size_t byte = std::stoul(said.substr(20));
    ASSERT_LE(byte, size) << said;
  }
  EXPECT_NO_THROW(parsed(file.substr(0, end)));
  const size_t name = file.find("a.scores");
  EXPECT_HAS(
      refusal_of(file.substr(0, name + 3)),
      fmt::format("byte {}: the name of key 8 needs 8 bytes, and the file has 3 more",
                  name));
  EXPECT_HAS(refusal_of(file.substr(0, end - 1)),
             fmt::format("byte {}: the file ends, and tensor \"rows.weight\" needs the "
                         "bytes up to {}",
                         end - 1, end));
}

TEST(Gguf, WrongCountsLengthsTypesAndOffsetsAreRefusedWithTheByte) {
  const std::string file = some_file();
  const size_t count = behind(file, "a.count");
  const auto at = [](size_t byte) { return fmt::format("byte {}: ", byte); };
  EXPECT_HAS(refusal_of("GGML" + file.substr(4)), "byte 0: this is no GGUF file");
  EXPECT_HAS(refusal_of(patched(file, 4, uint32_t{1})), "byte 4: the file has version 1");
  EXPECT_HAS(refusal_of(patched(file, 4, __builtin_bswap32(3))), "other byte order");
  EXPECT_NO_THROW(parsed(patched(file, 4, uint32_t{2})));
  EXPECT_HAS(refusal_of(patched(file, 8, ~uint64_t{0})), "byte 8: the number of tensors");
  EXPECT_HAS(refusal_of(patched(file, 16, uint64_t{1} << 40)),
             "byte 16: the number of keys is 1099511627776");
  EXPECT_HAS(refusal_of(patched(file, 24, ~uint64_t{0})), "byte 24: the name of key 0");
  EXPECT_HAS(refusal_of(patched(file, count, uint32_t{13})),
             at(count) + "key \"a.count\" has a value of type 13");
  const size_t tokens = behind(file, "a.tokens");
  EXPECT_HAS(refusal_of(patched(file, tokens + 4, uint32_t{9})),
             at(tokens + 4) + "key \"a.tokens\" is a list of lists");
  EXPECT_HAS(refusal_of(patched(file, tokens + 8, ~uint64_t{0})),
             at(tokens + 8) + "the length of key \"a.tokens\"");
  EXPECT_HAS(refusal_of(patched(file, tokens + 16, ~uint64_t{0})),
             "key \"a.tokens\" needs 18446744073709551615 bytes");
  EXPECT_HAS(refusal_of(patched(file, behind(file, "a.flag") + 4, uint8_t{2})),
             "is the truth value 2");
}

TEST(Gguf, WrongTensorsAreRefusedWithTheByte) {
  const std::string file = some_file();
  const size_t table = behind(file, "table.weight"), rows = behind(file, "rows.weight");
  const auto at = [](size_t byte) { return fmt::format("byte {}: ", byte); };
  EXPECT_HAS(refusal_of(patched(file, table, uint32_t{5})),
             at(table) + "tensor \"table.weight\" has 5 dims");
  EXPECT_HAS(refusal_of(patched(file, table, uint32_t{0})), "has 0 dims");
  EXPECT_HAS(refusal_of(patched(file, table + 4, int64_t{0})),
             at(table + 4) + "tensor \"table.weight\" has a dim of 0 elements");
  EXPECT_HAS(refusal_of(patched(file, table + 4, INT64_MAX)), "has a dim of");
  EXPECT_HAS(refusal_of(patched(file, table + 20, uint32_t{12})),
             at(table + 20) +
                 "tensor \"table.weight\" has the type Q4_K (12), which is "
                 "not read; F32, F16, BF16 and Q8_0 are");
  EXPECT_HAS(refusal_of(patched(file, table + 20, uint32_t{99})), "has the type 99,");
  EXPECT_HAS(refusal_of(patched(file, table + 20, uint32_t{8})),
             "has rows of 2 elements, which are no whole blocks of Q8_0");
  EXPECT_HAS(refusal_of(patched(file, table + 24, uint64_t{64})),
             at(table + 24) + "tensor \"table.weight\" has its data at 64, expected 32");
  std::string twice = file;
  std::memcpy(twice.data() + rows - 11, "norm.weight", 11);
  EXPECT_HAS(refusal_of(twice), "tensor \"norm.weight\" comes twice");
  EXPECT_HAS(refusal_of(file + std::string(8, 'x')),
             at(file.size()) + "8 bytes stand behind the last tensor");
}

TEST(Gguf, TheAlignmentIsThatOfTheFileOrRefused) {
  std::vector<GgufTensor> tensors;
  const auto aligned = [&](GgufValue value) {
    return gguf_header_bytes({{"general.alignment", std::move(value)}}, tensors);
  };
  EXPECT_EQ(parsed(aligned(uint32_t{64})).data_start, 64U);
  for (const uint32_t wrong : {0U, 1U, 24U, 1U << 31}) {
    EXPECT_HAS(refusal_of(aligned(wrong)),
               fmt::format("general.alignment is {}; a power of two", wrong));
  }
  EXPECT_HAS(refusal_of(aligned(std::string("32"))), "general.alignment is \"32\"");
}

TEST(Gguf, LongTextsAreNotKeptAndLongNamesAreCutInMessages) {
  std::vector<GgufTensor> tensors;
  constexpr size_t kMebibyte = size_t{1} << 20;
  const std::string name(65535, 'k');
  const GgufValues values = {{"a", std::string(kMebibyte, 't')},
                             {"b", std::string(kMebibyte + 1, 't')},
                             {name, true}};
  const GgufHeader header = parsed(gguf_header_bytes(values, tensors));
  EXPECT_EQ(header.values[0], values[0]);
  EXPECT_EQ(header.values[1].second, GgufValue(GgufUnread{kMebibyte + 1}));
  EXPECT_EQ(describe_value(values[0].second), "\"" + std::string(80, 't') + "\" ...");
  EXPECT_HAS(refusal_of(gguf_header_bytes({{name, true}, {name, true}}, tensors)),
             "key \"" + std::string(80, 'k') + "\" ... comes twice");
}

TEST(Gguf, AKeyThatComesTwiceIsRefused) {
  std::vector<GgufTensor> tensors;
  EXPECT_HAS(refusal_of(gguf_header_bytes({{"k", true}, {"k", true}}, tensors)),
             "key \"k\" comes twice");
}

}  // namespace
}  // namespace longhaul::format
