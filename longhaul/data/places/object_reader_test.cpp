#include "longhaul/data/places/object_reader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "longhaul/base/error.h"
#include "tests/support/memory_objects.h"

namespace longhaul::data {
namespace {

/// Returns bytes in which each aligned stretch of eight bytes differs from all others.
std::string numbered(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i >> (8 * (i % 8 % 4)));
  return text;
}

class Reading : public ::testing::Test {
 protected:
  ObjectReader open(size_t size, ObjectReader::Use use, uint64_t end = UINT64_MAX) {
    content_ = numbered(size);
    objects_->put("k", content_);
    const auto info = objects_->look({"bucket", "k"}).value();
    return {std::make_shared<const StoredObject>(objects_, info), use, end};
  }
  void expect_read(ObjectReader& reader, uint64_t offset, size_t count) {
    std::string got(count, '?');
    reader.read(offset, std::as_writable_bytes(std::span(got)));
    EXPECT_TRUE(got == content_.substr(offset, count)) << offset;
  }
  uint64_t bytes_asked() const {
    uint64_t bytes = 0;
    for (const auto& request : objects_->requests()) bytes += request.size;
    return bytes;
  }
  std::shared_ptr<MemoryObjects> objects_ = std::make_shared<MemoryObjects>();
  std::string content_;
};

TEST_F(Reading, FrontToBackGivesAllBytesAndAsksForEachOnce) {
  constexpr size_t kSize = (size_t{40} << 20) + 12345;
  ObjectReader reader = open(kSize, ObjectReader::Use::FrontToBack);
  for (size_t at = 0; at < kSize; at += 300'000) {
    expect_read(reader, at, std::min<size_t>(300'000, kSize - at));
  }
  EXPECT_EQ(bytes_asked(), kSize);
  for (const auto& request : objects_->requests()) {
    EXPECT_LE(request.size, kLargestPiece);
  }
}

TEST_F(Reading, WhatWasReadWholeIsComparedWithTheEtag) {
  const auto open = [&](const std::string& etag) {
    objects_->put("k", "message digest", etag);
    const auto info = objects_->look({"bucket", "k"}).value();
    return ObjectReader(std::make_shared<const StoredObject>(objects_, info),
                        ObjectReader::Use::FrontToBack);
  };
  const auto read = [](ObjectReader& reader, uint64_t offset, size_t count) {
    std::string got(count, '?');
    reader.read(offset, std::as_writable_bytes(std::span(got)));
  };
  ObjectReader right = open("\"f96b697d7cb7938d525a2f31aaf161d0\"");
  read(right, 0, 14);
  ObjectReader other = open("\"06b697d7cb7938d525a2f31aaf161d0f\"");
  read(other, 0, 9);
  read(other, 4, 9);  // a part of it was read before
  EXPECT_TRUE(objects_->doubted.empty());
  EXPECT_THROW(read(other, 13, 1), TemporaryError);
  EXPECT_EQ(objects_->doubted,
            (std::vector<std::string>{"k f96b697d7cb7938d525a2f31aaf161d0"}));
  ObjectReader end = open("\"06b697d7cb7938d525a2f31aaf161d0f\"");
  read(end, 5, 9);  // the rest of the object is another reader's
}

TEST_F(Reading, BegunAsksForOnePieceWithASmallRest) {
  constexpr size_t kSize = 12'000'000;
  ObjectReader reader = open(kSize, ObjectReader::Use::FrontToBack);
  reader.begin(0);
  expect_read(reader, 0, kSize);
  EXPECT_EQ(objects_->requests().size(), 1U);

  constexpr size_t kLarge = 40'000'000;
  ObjectReader large = open(kLarge, ObjectReader::Use::FrontToBack);
  large.begin(0);
  for (int i = 0; i < 10'000 && objects_->requests().size() < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(bytes_asked(), kSize + kObjectPiece);
  expect_read(large, 0, kLarge);
  EXPECT_EQ(bytes_asked(), kSize + kLarge);
}

TEST_F(Reading, OfARangeAsksForNothingFarBehindItsEnd) {
  constexpr uint64_t kEnd = 5'000'000;
  ObjectReader reader = open(60'000'000, ObjectReader::Use::FrontToBack, kEnd);
  for (uint64_t at = 1'000'000; at < kEnd + 500'000; at += 250'000) {
    expect_read(reader, at, 250'000);
  }
  EXPECT_EQ(bytes_asked(), 4'500'000U);
}

TEST_F(Reading, SmallPlacesInAnyOrderShareRequests) {
  ObjectReader reader = open(50'000'000, ObjectReader::Use::AnyOrder);
  for (const uint64_t at : {49'999'992, 49'999'000, 49'990'000, 0, 4, 100}) {
    expect_read(reader, at, 8);
  }
  EXPECT_LE(objects_->requests().size(), 3U);
  EXPECT_LE(bytes_asked(), 400'000U);
}

TEST_F(Reading, ALargePlaceTakesSeveralRequestsAtOnce) {
  constexpr size_t kSize = size_t{33} << 20;
  ObjectReader reader = open(kSize, ObjectReader::Use::AnyOrder, 0);
  expect_read(reader, 7, kSize - 7);
  EXPECT_GE(objects_->requests().size(), 4U);
  EXPECT_EQ(bytes_asked(), kSize - 7);
}

TEST_F(Reading, ThrowsWhatARequestAheadThrew) {
  ObjectReader reader = open(30'000'000, ObjectReader::Use::FrontToBack);
  objects_->before_read = [](uint64_t offset) {
    if (offset > 10'000'000) throw TemporaryError("objects", "the store is away");
  };
  expect_read(reader, 0, 1'000'000);
  EXPECT_THROW(
      {
        for (uint64_t at = 1'000'000; at < 29'000'000; at += 1'000'000) {
          expect_read(reader, at, 1'000'000);
        }
      },
      TemporaryError);
}

}  // namespace
}  // namespace longhaul::data
