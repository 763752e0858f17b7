#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <vector>

#include "longhaul/data/store/build/build_directory.h"
#include "longhaul/data/store/build/encode_documents.h"
#include "longhaul/data/store/build/pieces.h"

namespace longhaul::data {

/// The inputs and settings of a build of a token store. They do not change while the
/// build runs.
struct BuildContext {
  const BuildOptions& options;
  const InputSet& inputs;
  const std::vector<InputPart>& parts;
  const DocumentEncoder& encoder;
  const BuildDirectory& directory;
  int threads;
  uint64_t memory_bytes;
};

/// Reports how far a stage of the build has come. Any thread may call it.
class BuildMeter {
 public:
  BuildMeter(const BuildOptions& options, std::string_view stage, uint64_t total_bytes)
      : options_(options), now_{stage, 0, total_bytes, 0} {}
  /// Throws TemporaryError when the build was asked to stop.
  void add(uint64_t bytes, int64_t tokens);

 private:
  const BuildOptions& options_;
  std::mutex mutex_;
  BuildProgress now_;
};

/// Throws InputError when an earlier start dropped bad records and these options do not
/// allow dropped records.
void refuse_dropped_before(const BuildOptions& options, int64_t dropped);

/// Counts the bad records of all parts. Ends the build when there are too many bad
/// records, and with BadRecords::Fail at the first bad record. Any thread may call it.
class BadRecordLimit {
 public:
  /// `so_far` counts the bad records of parts that earlier starts have built.
  BadRecordLimit(const BuildContext& context, int64_t so_far);
  void add(const BadRecord& bad);

 private:
  const BuildContext& context_;
  std::atomic<int64_t> count_;
};

/// Runs `work` on each part, several parts at a time. All parts share one pool of
/// threads. Throws the error of the first failing part, after the other parts have ended.
void run_parts(const BuildContext& context, const std::vector<int>& parts,
               const std::function<void(int part, Workshop& shop)>& work);

/// Reads one part in pieces. `work(piece)` makes a result of a piece on the pool's
/// threads. `write(result)` takes the results in order and returns the number of tokens
/// in a result. `finish(ranges)` is called at the end. Progress goes to `meter`.
template <typename Work, typename Write, typename Finish>
void read_part(const BuildContext& context, int part, Workshop& shop, BuildMeter& meter,
               const Work& work, const Write& write, const Finish& finish) {
  using Result = std::invoke_result_t<const Work&, Piece&>;
  const InputPart& input = context.parts[static_cast<size_t>(part)];
  const std::unique_ptr<RecordReader> reader = context.inputs.open(input);
  uint64_t reported = 0;
  const auto report = [&](uint64_t read, int64_t tokens) {
    const uint64_t done = std::clamp(read, reported, input.stored_bytes);
    meter.add(done - reported, tokens);
    reported = done;
  };
  PieceLine<Result> line(shop, work, [&](Result& result) {
    const int64_t tokens = write(result);
    report(reader->bytes_read(), tokens);
  });
  line.run(*reader);
  finish(reader->finished());
  report(input.stored_bytes, 0);
}

/// Reads, encodes and writes one part: first its shards, then its record.
void build_part(const BuildContext& context, int part, Workshop& shop, BuildMeter& meter,
                BadRecordLimit& limit);

/// Reads a part and writes a hash for each record to directory.hashes(part).
void hash_part(const BuildContext& context, int part, Workshop& shop, BuildMeter& meter);

/// Finds, from the hashes of all parts, the records that repeat an earlier record of the
/// input. Writes directory.duplicates(part) for each part, then duplicates_known(). Holds
/// one bit for each record in memory, and sets of hashes within `memory_bytes`. Hashes
/// that do not fit into memory at once are written to files, one file for each range of
/// hashes.
void find_duplicates(const BuildDirectory& directory, int parts, uint64_t memory_bytes);

DuplicateBits read_duplicates(const fs::path& path);

/// Makes complete stores in directory.train() and directory.validation() of the records
/// of all parts. No token is copied: a store lists the parts' shards. Throws InputError
/// when there are too many bad records, or when a store would be empty. In the second
/// case the parts are removed.
void merge_parts(const BuildContext& context, const BuildPlan& plan,
                 const tokenizer::Tokenizer* tokenizer);

/// Moves the complete stores to their places and empties the directory, except for the
/// lock and the plan. A call that was interrupted at any moment can be repeated.
void commit_stores(const BuildDirectory& directory, const fs::path& out);

}  // namespace longhaul::data
