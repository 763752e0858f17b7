#include "longhaul/checkpoint/read/node_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "longhaul/base/hash.h"

namespace longhaul::checkpoint {
namespace {

constexpr uint64_t kMiB = kHashBlockBytes;

ByteRuns contiguous(uint64_t file, uint64_t begin, uint64_t end) {
  return {file, begin, end - begin, 1, end - begin};
}

uint64_t read_by(const NodePlan& plan, int rank) {
  uint64_t bytes = 0;
  for (const uint32_t c : plan.read_by(rank)) bytes += plan.chunks()[c].bytes;
  return bytes;
}

TEST(ByteRuns, CountsAndPartsAgreeWithEveryByte) {
  const ByteRuns runs{0, 10, 3, 4, 7};  // bytes 10-12, 17-19, 24-26, 31-33
  std::vector<bool> wanted(50, false);
  for (uint64_t i = 0; i < runs.count; ++i) {
    for (uint64_t b = 0; b < runs.run; ++b) wanted[10 + 7 * i + b] = true;
  }
  EXPECT_EQ(runs.end(), 34U);
  for (uint64_t from = 0; from <= 50; ++from) {
    for (uint64_t to = from; to <= 50; ++to) {
      std::vector<bool> found(50, false);
      uint64_t total = 0;
      runs.for_each_part(from, to,
                         [&](uint64_t run, uint64_t inside, uint64_t at, uint64_t n) {
                           EXPECT_EQ(at, 10 + 7 * run + inside);
                           for (uint64_t b = at; b < at + n; ++b) found[b] = true;
                           total += n;
                         });
      for (uint64_t b = 0; b < 50; ++b) {
        EXPECT_EQ(found[b], wanted[b] && b >= from && b < to);
      }
      EXPECT_EQ(runs.bytes_in(from, to), total);
    }
  }
}

TEST(NodePlan, WhatOneRankAloneWantsItReadsItself) {
  const NodePlan plan({{contiguous(0, 0, 8 * kMiB)}, {contiguous(1, 0, 8 * kMiB)}},
                      {8 * kMiB, 8 * kMiB});
  EXPECT_TRUE(plan.rounds().empty());
  for (const Chunk& chunk : plan.chunks()) {
    EXPECT_EQ(chunk.reader, static_cast<int>(chunk.file));
    EXPECT_FALSE(chunk.passed);
  }
}

TEST(NodePlan, WhatAllWantIsReadOnceInEvenShares) {
  const std::vector<ByteRuns> all = {contiguous(0, 100, 64 * kMiB - 5)};
  const NodePlan plan({all, all, all, all}, {64 * kMiB});
  uint64_t total = 0;
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(read_by(plan, r), 16 * kMiB);
    total += read_by(plan, r);
  }
  EXPECT_EQ(total, 64 * kMiB);
}

TEST(NodePlan, WhatOneRankAloneWantsIsStillReadByAll) {
  const NodePlan plan({{contiguous(0, 0, 64 * kMiB)}, {}, {}, {}}, {64 * kMiB});
  for (int r = 0; r < 4; ++r) {
    EXPECT_GE(read_by(plan, r), 8 * kMiB);
    EXPECT_LE(read_by(plan, r), 20 * kMiB);
  }
}

TEST(NodePlan, BlocksBetweenFarRunsAreNotRead) {
  const NodePlan plan({{{0, 5, 10, 3, 10 * kMiB}}}, {40 * kMiB});
  ASSERT_EQ(plan.chunks().size(), 3U);
  EXPECT_EQ(plan.chunks()[1].begin, 10 * kMiB);
  EXPECT_EQ(read_by(plan, 0), 3 * kMiB);
}

// Several ranks request random bytes. Every wanted byte lies in one chunk, no block is in
// two chunks, no round exceeds the limits, and each passed chunk is in one round.
TEST(NodePlan, RandomWishesAreCoveredWithinTheLimits) {
  uint64_t counter = 0;
  const auto random = [&](uint64_t below) {
    uint64_t x = ++counter * 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    return (x ^ (x >> 31)) % below;
  };
  for (int trial = 0; trial < 60; ++trial) {
    const size_t ranks = 1 + random(5);
    std::vector<uint64_t> sizes(1 + random(3));
    for (uint64_t& size : sizes) size = 1 + random(30 * kMiB);
    std::vector<std::vector<ByteRuns>> runs_of(ranks);
    for (auto& runs : runs_of) {
      runs.resize(random(6));
      for (ByteRuns& r : runs) {
        r.file = random(sizes.size());
        r.start = random(sizes[r.file]);
        r.run = 1 + random(std::min(sizes[r.file] - r.start, 3 * kMiB));
        r.stride = r.run + random(2 * kMiB);
        r.count = 1 + (sizes[r.file] - r.start - r.run) / r.stride;
      }
      std::sort(runs.begin(), runs.end(), [](const ByteRuns& a, const ByteRuns& b) {
        return std::pair(a.file, a.start) < std::pair(b.file, b.start);
      });
    }
    const PlanLimits limits{2, 9 * kMiB};
    const NodePlan plan(runs_of, sizes, limits);
    std::map<uint64_t, uint64_t> end_of;  // by file
    uint64_t wanted = 0;
    uint64_t covered = 0;
    for (uint32_t c = 0; c < plan.chunks().size(); ++c) {
      const Chunk& chunk = plan.chunks()[c];
      EXPECT_GE(chunk.begin, end_of[chunk.file]);
      EXPECT_EQ(chunk.begin % kMiB, 0U);
      end_of[chunk.file] = chunk.begin + chunk.bytes;
      for (size_t r = 0; r < ranks; ++r) covered += plan.wanted(static_cast<int>(r), c);
    }
    for (const auto& runs : runs_of) {
      for (const ByteRuns& r : runs) wanted += r.bytes();
    }
    EXPECT_EQ(covered, wanted);
    std::set<uint32_t> seen;
    for (const auto& round : plan.rounds()) {
      std::vector<size_t> read(ranks, 0);
      std::vector<uint64_t> received(ranks, 0);
      std::vector<uint64_t> largest(
          ranks, 0);  // a chunk that is wanted twice may exceed the limit by itself
      for (const uint32_t c : round) {
        EXPECT_TRUE(seen.insert(c).second);
        EXPECT_TRUE(plan.chunks()[c].passed);
        const auto reader = static_cast<size_t>(plan.chunks()[c].reader);
        ++read[reader];
        for (size_t r = 0; r < ranks; ++r) {
          if (r == reader) continue;
          const uint64_t bytes = plan.wanted(static_cast<int>(r), c);
          received[r] += bytes;
          largest[r] = std::max(largest[r], bytes);
        }
      }
      for (size_t r = 0; r < ranks; ++r) {
        EXPECT_LE(read[r], limits.read_chunks);
        EXPECT_LE(received[r], std::max(limits.received_bytes, largest[r]));
      }
    }
    size_t passed = 0;
    for (const Chunk& chunk : plan.chunks()) passed += chunk.passed ? 1 : 0;
    EXPECT_EQ(seen.size(), passed);
  }
}

TEST(NodePlan, AFileWithReadersOfItsOwnIsReadByThemAndPassedOn) {
  // Rank 0 wants all of both files and can read only the first one.
  const NodePlan plan({{contiguous(0, 0, 40 * kMiB), contiguous(1, 0, 4 * kMiB)},
                       {},
                       {contiguous(1, 0, 2 * kMiB)}},
                      {40 * kMiB, 4 * kMiB}, {}, {{0}, {1, 2}});
  for (const Chunk& chunk : plan.chunks()) {
    EXPECT_NE(chunk.file == 0, chunk.reader != 0);
    EXPECT_EQ(chunk.passed, chunk.file == 1);
    // Only rank 2 both wants these chunks and can read their file.
    if (chunk.file == 1 && chunk.begin < 2 * kMiB) {
      EXPECT_EQ(chunk.reader, 2);
    }
  }
  EXPECT_EQ(read_by(plan, 0), 40 * kMiB);  // far above its fair share
}

}  // namespace
}  // namespace longhaul::checkpoint
