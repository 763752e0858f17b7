#include "longhaul/checkpoint/read/node_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"

namespace longhaul::checkpoint {
namespace {

/// Marks the blocks of a file that hold bytes of these byte runs.
void mark(const ByteRuns& runs, std::vector<bool>& blocks) {
  const auto mark_range = [&](uint64_t begin, uint64_t end) {
    for (uint64_t b = begin / kHashBlockBytes; b <= (end - 1) / kHashBlockBytes; ++b) {
      blocks[b] = true;
    }
  };
  if (runs.stride - runs.run < kHashBlockBytes) {  // no block fits between two runs
    mark_range(runs.start, runs.end());
    return;
  }
  for (uint64_t i = 0; i < runs.count; ++i) {
    const uint64_t begin = runs.start + i * runs.stride;
    mark_range(begin, begin + runs.run);
  }
}

}  // namespace

NodePlan::NodePlan(const std::vector<std::vector<ByteRuns>>& runs_of,
                   const std::vector<uint64_t>& file_sizes, const PlanLimits& limits,
                   const std::vector<std::vector<int>>& readers) {
  make_chunks(runs_of, file_sizes);
  ranks_.resize(runs_of.size());
  for (size_t r = 0; r < runs_of.size(); ++r) find_runs(r, runs_of[r]);
  choose_readers(readers);
  make_rounds(limits);
}

void NodePlan::make_chunks(const std::vector<std::vector<ByteRuns>>& runs_of,
                           const std::vector<uint64_t>& file_sizes) {
  std::map<uint64_t, std::vector<bool>> needed;
  for (const std::vector<ByteRuns>& runs : runs_of) {
    for (const ByteRuns& r : runs) {
      LH_CHECK(r.file < file_sizes.size() && r.end() <= file_sizes[r.file], "checkpoint",
               "bytes {} to {} of file {}", r.start, r.end(), r.file);
      std::vector<bool>& blocks = needed[r.file];
      if (blocks.empty()) {
        blocks.resize((file_sizes[r.file] + kHashBlockBytes - 1) / kHashBlockBytes);
      }
      mark(r, blocks);
    }
  }
  uint64_t all = 0;
  for (const auto& [file, blocks] : needed) {
    all += static_cast<uint64_t>(std::ranges::count(blocks, true));
  }
  // Chunks are small enough to be dealt to the ranks in about equal shares.
  const uint64_t most = std::clamp<uint64_t>(all / (4 * runs_of.size()), 1, kChunkBlocks);
  for (const auto& [file, blocks] : needed) {
    uint64_t block = 0;
    while (block < blocks.size()) {
      uint64_t end = block;
      while (end < blocks.size() && end - block < most && blocks[end]) ++end;
      if (end > block) {
        const uint64_t begin = block * kHashBlockBytes;
        chunks_.push_back(
            {file, begin, std::min(end * kHashBlockBytes, file_sizes[file]) - begin});
      }
      block = std::max(end, block + 1);
    }
  }
}

void NodePlan::find_runs(size_t rank, const std::vector<ByteRuns>& runs) {
  RankRuns& mine = ranks_[rank];
  mine.wanted.assign(chunks_.size(), 0);
  mine.first.assign(chunks_.size() + 1, 0);
  // The first pass counts the byte runs that touch each chunk, the second lists them.
  for (const bool counting : {true, false}) {
    std::vector<uint32_t> next = mine.first;
    for (uint32_t i = 0; i < runs.size(); ++i) {
      const ByteRuns& r = runs[i];
      auto chunk =
          std::partition_point(chunks_.begin(), chunks_.end(), [&](const Chunk& c) {
            return std::tuple(c.file, c.begin + c.bytes) <= std::tuple(r.file, r.start);
          });
      for (; chunk != chunks_.end() && chunk->file == r.file && chunk->begin < r.end();
           ++chunk) {
        const uint64_t bytes = r.bytes_in(chunk->begin, chunk->begin + chunk->bytes);
        if (bytes == 0) continue;
        const auto number = static_cast<size_t>(chunk - chunks_.begin());
        if (counting) {
          ++mine.first[number + 1];
          mine.wanted[number] += bytes;
        } else {
          mine.runs[next[number]++] = i;
        }
      }
    }
    if (!counting) return;
    for (size_t c = 0; c < chunks_.size(); ++c) mine.first[c + 1] += mine.first[c];
    mine.runs.resize(mine.first.back());
  }
}

void NodePlan::choose_readers(const std::vector<std::vector<int>>& readers) {
  uint64_t total = 0;
  for (const Chunk& chunk : chunks_) total += chunk.bytes;
  const uint64_t fair = total / ranks_.size() + kChunkBlocks * kHashBlockBytes;
  std::vector<uint64_t> load(ranks_.size(), 0);
  std::vector<int> everybody(ranks_.size());
  std::iota(everybody.begin(), everybody.end(), 0);
  for (size_t c = 0; c < chunks_.size(); ++c) {
    Chunk& chunk = chunks_[c];
    const bool some = chunk.file < readers.size() && !readers[chunk.file].empty();
    const std::vector<int>& able = some ? readers[chunk.file] : everybody;
    // The reader is the rank that wants most of the chunk. Among equals, and where all
    // ranks that want it already have their fair share, it is the rank that reads least.
    auto best = static_cast<size_t>(able.front());
    const auto rating = [&](size_t r) {
      const bool may_more = some || load[r] + chunk.bytes <= fair;
      return std::tuple(may_more ? ranks_[r].wanted[c] : 0, ~load[r]);
    };
    int wanting = 0;
    for (const RankRuns& rank : ranks_) wanting += rank.wanted[c] > 0 ? 1 : 0;
    for (const int rank : able) {
      const auto r = static_cast<size_t>(rank);
      if (rating(r) > rating(best)) best = r;
    }
    chunk.reader = static_cast<int>(best);
    chunk.passed = wanting > (ranks_[best].wanted[c] > 0 ? 1 : 0);
    load[best] += chunk.bytes;
  }
}

void NodePlan::make_rounds(const PlanLimits& limits) {
  const size_t ranks = ranks_.size();
  std::vector<std::vector<uint32_t>> queues(ranks);
  size_t left = 0;
  for (uint32_t c = 0; c < chunks_.size(); ++c) {
    if (!chunks_[c].passed) continue;
    queues[static_cast<size_t>(chunks_[c].reader)].push_back(c);
    ++left;
  }
  std::vector<size_t> next(ranks, 0);
  while (left > 0) {
    std::vector<uint32_t> round;
    std::vector<size_t> read(ranks, 0);
    std::vector<uint64_t> received(ranks, 0);
    const auto fits = [&](size_t reader, uint32_t chunk) {
      bool good = read[reader] < limits.read_chunks;
      for (size_t r = 0; good && r < ranks; ++r) {
        good = r == reader ||
               received[r] + wanted(static_cast<int>(r), chunk) <= limits.received_bytes;
      }
      return good;
    };
    for (bool added = true; added;) {
      added = false;
      for (size_t reader = 0; reader < ranks; ++reader) {
        if (next[reader] == queues[reader].size()) continue;
        const uint32_t chunk = queues[reader][next[reader]];
        if (!round.empty() && !fits(reader, chunk)) continue;
        ++next[reader];
        --left;
        added = true;
        ++read[reader];
        for (size_t r = 0; r < ranks; ++r) {
          if (r != reader) received[r] += wanted(static_cast<int>(r), chunk);
        }
        round.push_back(chunk);
      }
    }
    rounds_.push_back(std::move(round));
  }
}

std::vector<uint32_t> NodePlan::read_by(int rank) const {
  std::vector<uint32_t> result;
  for (const bool passed : {true, false}) {
    for (uint32_t c = 0; c < chunks_.size(); ++c) {
      if (chunks_[c].reader == rank && chunks_[c].passed == passed) result.push_back(c);
    }
  }
  return result;
}

std::span<const uint32_t> NodePlan::runs_in(int rank, uint32_t chunk) const {
  const RankRuns& r = ranks_[static_cast<size_t>(rank)];
  return std::span(r.runs).subspan(r.first[chunk], r.first[chunk + 1] - r.first[chunk]);
}

uint64_t NodePlan::wanted(int rank, uint32_t chunk) const {
  return ranks_[static_cast<size_t>(rank)].wanted[chunk];
}

}  // namespace longhaul::checkpoint
