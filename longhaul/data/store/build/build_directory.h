#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/data/input/input_set.h"
#include "longhaul/data/store/build/build_store.h"
#include "longhaul/data/store/build/encode_documents.h"
#include "longhaul/data/store/store.h"

namespace longhaul::data {

// An unfinished store, OUT.building:
//   plan.json              what is built of what; written by the first process
//   process_00000.lock     who works here
//   train/ validation/     the shards, which become OUT and OUT-val by a rename
//   parts/part_00000.json  what part 0 became; written when its shards are durable
//   parts/bad_00000.jsonl  its bad records
//   hashes/, duplicates/   with drop_duplicates: a hash per record, then a bit per record
//   commit.json            the store is whole and is being moved to its place
struct BuildDirectory {
  explicit BuildDirectory(fs::path path) : root(std::move(path)) {}
  fs::path root;

  fs::path plan() const { return root / "plan.json"; }
  fs::path commit() const { return root / "commit.json"; }
  fs::path train() const { return root / "train"; }
  fs::path validation() const { return root / "validation"; }
  fs::path lock(int process) const;
  fs::path part_record(int part) const;
  fs::path bad_records(int part) const;
  fs::path hashes(int part) const;
  fs::path duplicates(int part) const;
  /// Written when the duplicates of all parts are known.
  fs::path duplicates_known() const { return root / "duplicates" / "known.json"; }
};

/// What one part became.
struct PartRecord {
  std::optional<StoreShard> train;
  std::optional<StoreShard> validation;
  StoreCounts train_counts;
  StoreCounts validation_counts;
  std::map<RecordProblem, int64_t> left_out;
  int64_t duplicates = 0;
  int64_t padding = 0;
  std::vector<FinishedRange> ranges;
  std::optional<std::string> first_text;

  int64_t bad() const;
};

/// A bad record of a part's list, which is read line by line.
std::string bad_record_line(const BadRecord& bad);
BadRecord parse_bad_record(std::string_view line, const fs::path& file);

void write_part_record(const fs::path& path, const PartRecord& record);
PartRecord read_part_record(const fs::path& path);

/// What decides the bytes of a store, by name, for people and for comparison.
struct BuildPlan {
  std::map<std::string, std::string> facts;
  /// A hash of all facts: store.json's "build".
  std::string key() const;
};
BuildPlan make_plan(const BuildOptions& options, const InputSet& inputs,
                    const DocumentEncoder& encoder, const tokenizer::Tokenizer* tokenizer,
                    uint64_t part_bytes, size_t parts);

/// Writes the plan, or compares it with the one that is there already (another process,
/// or an earlier start). What differs is the result, for people; empty: nothing.
std::string agree_on_plan(const BuildDirectory& directory, const BuildPlan& plan,
                          const InputSet& inputs);

/// The parts of process `process`: shared out by stored bytes, the same in all processes.
std::vector<int> parts_of_process(const std::vector<InputPart>& parts, int process,
                                  int processes);

}  // namespace longhaul::data
