#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string_view>
#include <vector>

#include "longhaul/data/store/build/build_directory.h"
#include "longhaul/data/store/build/encode_documents.h"
#include "longhaul/data/store/build/pieces.h"

namespace longhaul::data {

/// What a build is made of; nothing of it changes while it runs.
struct BuildContext {
  const BuildOptions& options;
  const InputSet& inputs;
  const std::vector<InputPart>& parts;
  const DocumentEncoder& encoder;
  const BuildDirectory& directory;
  int threads;
  uint64_t memory_bytes;
};

/// Reports how far a stage has come. Any thread may call it.
class BuildMeter {
 public:
  BuildMeter(const BuildOptions& options, std::string_view stage, uint64_t total_bytes)
      : options_(options), now_{stage, 0, total_bytes, 0} {}
  /// TemporaryError when the build was asked to stop.
  void add(uint64_t bytes, int64_t tokens);

 private:
  const BuildOptions& options_;
  std::mutex mutex_;
  BuildProgress now_;
};

/// InputError where bad records were dropped that must not be by these options.
void refuse_dropped_before(const BuildOptions& options, int64_t dropped);

/// Counts bad records over all parts and ends the build when there are too many, or any
/// with BadRecords::Fail. Any thread may call it.
class BadRecordLimit {
 public:
  /// `so_far`: of parts that were done before; see refuse_dropped_before.
  BadRecordLimit(const BuildContext& context, int64_t so_far);
  void add(const BadRecord& bad);

 private:
  const BuildContext& context_;
  std::atomic<int64_t> count_;
};

/// Runs `work` on each part, several at a time, with a pool that all of them share.
/// Throws what the first failing part threw, after the others have ended.
void run_parts(const BuildContext& context, const std::vector<int>& parts,
               const std::function<void(int part, Workshop& shop)>& work);

/// Reads, encodes and writes one part: its shards, then its record.
void build_part(const BuildContext& context, int part, Workshop& shop, BuildMeter& meter,
                BadRecordLimit& limit);

}  // namespace longhaul::data
