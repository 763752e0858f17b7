#include "longhaul/imports/pickle/zip_reader.h"

#include <gtest/gtest.h>

#include <functional>

#include "longhaul/base/crc.h"
#include "longhaul/base/error.h"
#include "longhaul/imports/torch_file.h"
#include "tests/support/weights_files.h"

namespace longhaul::imports {
namespace {

template <typename T>
void add(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

struct Member {
  std::string name;
  std::string data;
  uint16_t method = 0;
  uint32_t header = 0;  // where the directory says it begins; set by make_zip
};

std::string make_zip(std::vector<Member> members,
                     const std::function<void(std::vector<Member>&)>& spoil = {}) {
  std::string out;
  for (Member& member : members) {
    member.header = static_cast<uint32_t>(out.size());
    add<uint32_t>(out, 0x04034b50);
    add<uint16_t>(out, 0);
    add<uint16_t>(out, 0);
    add<uint16_t>(out, member.method);
    add<uint32_t>(out, 0);
    add<uint32_t>(out, 0);
    add<uint32_t>(out, static_cast<uint32_t>(member.data.size()));
    add<uint32_t>(out, static_cast<uint32_t>(member.data.size()));
    add<uint16_t>(out, static_cast<uint16_t>(member.name.size()));
    add<uint16_t>(out, 0);
    out += member.name + member.data;
  }
  if (spoil) spoil(members);
  const auto start = static_cast<uint32_t>(out.size());
  for (const Member& member : members) {
    add<uint32_t>(out, 0x02014b50);
    add<uint16_t>(out, 0);
    add<uint16_t>(out, 0);
    add<uint16_t>(out, 0);
    add<uint16_t>(out, member.method);
    add<uint32_t>(out, 0);
    add<uint32_t>(out, crc_of<kCrc32>(std::as_bytes(std::span(member.data))));
    add<uint32_t>(out, static_cast<uint32_t>(member.data.size()));
    add<uint32_t>(out, static_cast<uint32_t>(member.data.size()));
    add<uint16_t>(out, static_cast<uint16_t>(member.name.size()));
    out.append(12, '\0');
    add<uint32_t>(out, member.header);
    out += member.name;
  }
  const auto size = static_cast<uint32_t>(out.size()) - start;
  add<uint32_t>(out, 0x06054b50);
  add<uint32_t>(out, 0);
  add<uint16_t>(out, static_cast<uint16_t>(members.size()));
  add<uint16_t>(out, static_cast<uint16_t>(members.size()));
  add<uint32_t>(out, size);
  add<uint32_t>(out, start);
  add<uint16_t>(out, 0);
  return out;
}

std::vector<ZipEntry> read(const std::string& text) {
  return read_zip(std::as_bytes(std::span(text)), "z");
}
std::string problem(const std::string& text) {
  return message_of<InputError>([&] { read(text); });
}

TEST(Zip, EntriesAreFoundWhereTheyLie) {
  const std::string text = make_zip({{"a/b", "hello"}, {"a/c", ""}});
  const auto entries = read(text);
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].name, "a/b");
  EXPECT_EQ(text.substr(entries[0].begin, entries[0].size), "hello");
  EXPECT_EQ(entries[1].size, 0U);
}

TEST(Zip, Crc32IsThatOfTheStandard) {
  const std::string check = "123456789";
  EXPECT_EQ(crc_of<kCrc32>(std::as_bytes(std::span(check))), 0xCBF43926U);
}

TEST(Zip, EveryTruncationIsRefused) {
  const std::string text = make_zip({{"a/b", "hello"}, {"a/c", "x"}});
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_THROW(read(text.substr(0, size)), InputError) << size;
  }
}

TEST(Zip, EntriesThatOverlapOrLeaveTheFileAreRefused) {
  EXPECT_HAS(problem(make_zip({{"a", "x"}, {"a", "y"}})), "twice");
  EXPECT_HAS(problem(make_zip({{"a", "hello"}, {"b", "y"}},
                              [](auto& members) { members[1].header = 0; })),
             "names another file");
  EXPECT_HAS(problem(make_zip({{"a", "x"}}, [](auto& m) { m[0].data.assign(99, 'x'); })),
             "does not fit");
  // The second header lies inside the first one's data.
  const std::string inner = make_zip({{"b", "y"}});
  EXPECT_HAS(problem(make_zip({{"a", inner}},
                              [](auto& members) {
                                Member second{"b", "y"};
                                second.header = 31;
                                members.push_back(second);
                              })),
             "overlaps");
  EXPECT_HAS(problem(make_zip({{"a", "x"}}, [](auto& m) { m[0].header = 4000; })),
             "outside");
}

TEST(Zip, NamesThatLeaveTheArchiveAndPackedEntriesAreRefused) {
  EXPECT_HAS(problem(make_zip({{"../a", "x"}})), "leaves");
  EXPECT_HAS(problem(make_zip({{"a/../../b", "x"}})), "leaves");
  EXPECT_HAS(problem(make_zip({{"/etc/passwd", "x"}})), "leaves");
  EXPECT_HAS(problem(make_zip({{"a\\b", "x"}})), "leaves");
  EXPECT_HAS(problem(make_zip({{"a", "x", 8}})), "compressed");
}

TEST(TorchFile, WhatIsNoneIsNamed) {
  const auto message = [](const std::string& text) {
    return message_of<InputError>(
        [&] { read_torch_file(std::as_bytes(std::span(text)), 0, "f"); });
  };
  EXPECT_HAS(message(""), "empty");
  EXPECT_HAS(message("version https://git-lfs.github.com/spec/v1"), "git lfs pull");
  EXPECT_HAS(message("hello"), "neither");
  EXPECT_HAS(message(make_zip({{"a/x", "1"}})), "without data.pkl");
  EXPECT_HAS(message(make_zip({{"a/data.pkl", "N."}, {"a/constants.pkl", "N."}})),
             "TorchScript");
  EXPECT_HAS(message(make_zip({{"a/data.pkl", "N."}, {"a/byteorder", "big"}})),
             "big-endian");
  std::string damaged = make_zip({{"a/data.pkl", "N."}});
  damaged[damaged.find("N.")] = ')';
  EXPECT_HAS(message(damaged), "checksum");
}

}  // namespace
}  // namespace longhaul::imports
