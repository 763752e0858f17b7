#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/data/input/input_set.h"
#include "longhaul/data/store/build/build_store.h"
#include "longhaul/data/store/build/encode_documents.h"
#include "longhaul/data/store/resumable_build.h"
#include "longhaul/data/store/store.h"

namespace longhaul::data {

// An unfinished token store, OUT.building:
//   plan.json              what decides the store's bytes; written by the first process
//   inputs.jsonl           the input files as the first process found them
//   process_00000.lock     the lock of process 0
//   train/ validation/     the shards; become OUT and OUT-val by a rename
//   parts/part_00000.json  the result of part 0; written when its shards are durable
//   parts/bad_00000.jsonl  the bad records of part 0
//   hashes/, duplicates/   with drop_duplicates: a hash per record, then a bit per record
//   commit.json            the store is whole and is being moved to its place
struct BuildDirectory {
  explicit BuildDirectory(fs::path path) : root(std::move(path)) {}
  fs::path root;

  fs::path commit() const { return root / "commit.json"; }
  fs::path train() const { return root / "train"; }
  fs::path validation() const { return root / "validation"; }
  fs::path bad_list() const { return root / "bad_records.jsonl"; }
  fs::path lock(int process) const { return file("process_", process, ".lock"); }
  fs::path part_record(int part) const { return file("parts/part_", part, ".json"); }
  fs::path bad_records(int part) const { return file("parts/bad_", part, ".jsonl"); }
  fs::path hashes(int part) const { return file("hashes/hashes_", part, ".bin"); }
  fs::path duplicates(int part) const {
    return file("duplicates/duplicates_", part, ".bin");
  }
  /// Returns the path of the file that is written when the duplicates of all parts are
  /// known.
  fs::path duplicates_known() const { return root / "duplicates" / "known.json"; }

 private:
  fs::path file(const char* name, int number, const char* ending) const;
};

/// The result of one part: its shards and what was left out.
struct PartRecord {
  Sides<ShardSide> sides;
  std::map<RecordProblem, int64_t> left_out;
  int64_t duplicates = 0;
  int64_t padding = 0;
  std::vector<FinishedRange> ranges;
  std::optional<std::string> first_text;
  ChatFindings findings;

  /// Returns the number of records that were left out as broken.
  int64_t bad() const;
};

/// Returns one line of a part's list of bad records.
std::string bad_record_line(const BadRecord& bad);
BadRecord parse_bad_record(std::string_view line, const fs::path& file);

void write_part_record(const fs::path& path, const PartRecord& record);
PartRecord read_part_record(const fs::path& path);

/// All facts that decide the bytes of a store, by name. Starts and processes of one build
/// compare their plans.
struct BuildPlan {
  std::map<std::string, std::string> facts;
  /// Returns a hash of all facts, which is the field "build" of store.json.
  std::string key() const;
};
BuildPlan make_plan(const BuildOptions& options, const InputSet& inputs,
                    const DocumentEncoder& encoder, const tokenizer::Tokenizer* tokenizer,
                    uint64_t part_bytes, size_t parts);

/// Returns the day in the plan of the build in a directory; empty if there is none.
std::string day_of_plan(const fs::path& directory);

/// Writes the plan, or compares it with the plan that another process or an earlier start
/// has written. Returns a description of the differences; empty when the plans are equal.
std::string agree_on_plan(const ResumableBuild& build, const BuildPlan& plan,
                          const InputSet& inputs);

/// Returns the parts that `process` builds. All processes compute the same distribution,
/// which balances the stored bytes.
std::vector<int> parts_of_process(const std::vector<InputPart>& parts, int process,
                                  int processes);

}  // namespace longhaul::data
