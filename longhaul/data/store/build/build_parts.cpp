#include "longhaul/data/store/build/build_parts.h"

#include <fmt/format.h>

#include <exception>
#include <map>
#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/input/wrong_files.h"
#include "longhaul/system/run_on_threads.h"

namespace longhaul::data {
namespace {

/// Writes the list of a part's bad records. Without bad records there is no file.
class BadList {
 public:
  explicit BadList(fs::path path) : path_(std::move(path)) {}
  void add(const BadRecord& bad) {
    if (!file_.is_open()) file_ = File::create(path_);
    lines_ += bad_record_line(bad);
    if (lines_.size() > (size_t{1} << 20)) flush();
  }
  void finish() {
    if (!file_.is_open()) return;
    flush();
    file_.sync();
    file_.close();
  }

 private:
  void flush() {
    file_.write(std::string_view(lines_));
    lines_.clear();
  }
  fs::path path_;
  File file_;
  std::string lines_;
};

void check_ranges(const InputPart& part, const std::vector<FinishedRange>& finished) {
  bool same = part.ranges.size() == finished.size();
  for (size_t i = 0; same && i < finished.size(); ++i) {
    same = part.ranges[i] == finished[i].range;
  }
  LH_CHECK(same, "data", "a part of {} ranges was read as {}", part.ranges.size(),
           finished.size());
}

/// Throws TemporaryError when the build was asked to stop.
void refuse_to_go_on(const BuildOptions& options) {
  if (!options.stop || !options.stop()) return;
  throw TemporaryError(
      "data",
      "stopped; the finished parts are kept, and the same command goes on from there");
}

}  // namespace

void BuildMeter::add(uint64_t bytes, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  now_.bytes += bytes;
  now_.tokens += tokens;
  if (options_.progress) options_.progress(now_);
  refuse_to_go_on(options_);
}

void refuse_dropped_before(const BuildOptions& options, int64_t dropped) {
  if (dropped == 0 || options.bad_records == BadRecords::Drop) return;
  fail_input("data",
             "{} bad records were dropped by an earlier start with --bad-records drop; "
             "give --bad-records drop again, or begin anew with --restart",
             grouped(dropped));
}

BadRecordLimit::BadRecordLimit(const BuildContext& context, int64_t so_far)
    : context_(context), count_(so_far) {
  refuse_dropped_before(context.options, so_far);
}

void BadRecordLimit::add(const BadRecord& bad) {
  const BuildOptions& options = context_.options;
  if (options.bad_records == BadRecords::Fail) {
    fail_record(context_.inputs, bad.place, bad.problem, bad.detail);
  }
  const int64_t count = ++count_;
  if (count <= options.max_bad_records) return;
  fail_input(
      "data",
      "more than {} bad records, the last of them {}; correct the records, or "
      "raise --max-bad-records",
      grouped(options.max_bad_records),
      describe_broken(context_.inputs.describe(bad.place), bad.problem, bad.detail));
}

void run_parts(const BuildContext& context, const std::vector<int>& parts,
               const std::function<void(int, Workshop&)>& work) {
  if (parts.empty()) return;
  system::WorkerPool pool(context.threads);
  // Half of the memory is for readers, half for pieces of records in progress.
  MemoryBudget readers(context.memory_bytes / 2);
  MemoryBudget memory(context.memory_bytes / 2);
  std::atomic<bool> stop = false;
  Workshop shop{pool, memory, 2 * static_cast<size_t>(context.threads) + 2, stop};
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::map<int, std::exception_ptr> failures;  // by part
  const auto lane = [&] {
    for (size_t i = next++; i < parts.size() && !stop; i = next++) {
      try {
        const InputPart& part = context.parts[static_cast<size_t>(parts[i])];
        const Loan loan = readers.lend(context.inputs.reader_bytes(part));
        if (!stop) work(parts[i], shop);
      } catch (const Stopped&) {
        return;
      } catch (...) {
        const std::lock_guard lock(mutex);
        failures.emplace(parts[i], std::current_exception());
        stop = true;
      }
    }
  };
  const auto most = std::min(static_cast<size_t>(context.threads), parts.size());
  system::run_on_threads(static_cast<int>(most), [&](int) { lane(); });
  if (failures.empty()) return;
  // If the build was asked to stop, the failures are only requests that were cut off.
  refuse_to_go_on(context.options);
  std::rethrow_exception(failures.begin()->second);
}

void build_part(const BuildContext& context, int part, Workshop& shop, BuildMeter& meter,
                BadRecordLimit& limit) {
  const BuildDirectory& directory = context.directory;
  const int token_bytes = context.encoder.token_bytes();
  Sides<ShardWriter> writers{{directory.train(), part, token_bytes},
                             {directory.validation(), part, token_bytes}};
  BadList bad(directory.bad_records(part));
  PartRecord record;
  std::optional<DuplicateBits> duplicates;
  if (context.options.drop_duplicates) {
    duplicates = read_duplicates(directory.duplicates(part));
  }
  const auto encode = [&](Piece& piece) {
    return context.encoder.encode(piece, duplicates ? &*duplicates : nullptr);
  };
  FilesInUse files(context.inputs);
  const auto write = [&](EncodedPiece& piece) {
    for (const int file : piece.files) files.use(file);
    for (const BadRecord& one : piece.bad) {
      limit.add(one);
      files.drop(one.place, one.problem, one.detail);
      bad.add(one);
    }
    writers.train.append(piece.sides.train);
    writers.validation.append(piece.sides.validation);
    for (const auto& [problem, count] : piece.left_out) record.left_out[problem] += count;
    record.duplicates += piece.duplicates;
    record.padding += piece.padding;
    add_findings(record.findings, piece.findings);
    if (!record.first_text) record.first_text = std::move(piece.first_text);
    return piece.tokens;
  };
  const auto finish = [&](const std::vector<FinishedRange>& ranges) {
    check_ranges(context.parts[static_cast<size_t>(part)], ranges);
    for (const FinishedRange& done : ranges) {
      const bool whole = done.range.begin == 0 && done.range.end == InputRange::kToEnd;
      if (whole) files.check(done.range.file, done.records);
    }
    record.ranges = ranges;
    record.sides = {writers.train.finish(), writers.validation.finish()};
    bad.finish();
    if (record.sides.train.shard) sync_directory(directory.train());
    if (record.sides.validation.shard) sync_directory(directory.validation());
    write_part_record(directory.part_record(part), record);
  };
  read_part(context, part, shop, meter, encode, write, finish);
}

}  // namespace longhaul::data
