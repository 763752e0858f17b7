#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "longhaul/data/input/input_set.h"
#include "longhaul/data/input/record.h"

namespace longhaul::data {

/// Returns what kind of file a record with this problem comes from, and what to do, if
/// the whole file has another form: one JSON array, for example, or text in UTF-16.
/// Returns an empty text if the record alone is wrong. Reads the beginning of the file.
std::string problem_of_file(const InputFile& file, RecordProblem problem);

/// Returns the message about a broken record: the problem of its file, if there is one,
/// else "PLACE: PROBLEM: DETAIL" and `advice`. Some problems have an advice of their own.
std::string tell_broken(const InputSet& inputs, const RecordPlace& place,
                        RecordProblem problem, const std::string& detail,
                        std::string_view advice = kRecordAdvice);

/// Throws InputError with the text that tell_broken() returns.
[[noreturn]] void fail_record(const InputSet& inputs, const RecordPlace& place,
                              RecordProblem problem, const std::string& detail);

/// Watches the files of a build that leaves bad records out. If none of a file's records
/// is used, the whole file is wrong and not only some of its records. Not thread-safe.
class FilesInUse {
 public:
  explicit FilesInUse(const InputSet& inputs) : inputs_(inputs) {}
  /// Notes that a record of the file is a document, or a copy of one.
  void use(int file) { used_.insert(file); }
  /// Notes a bad record. Throws InputError if the whole file has another form, as
  /// problem_of_file() says.
  void drop(const RecordPlace& place, RecordProblem problem, const std::string& detail);
  /// Must be called at the end of a file with `records` records. Throws InputError if
  /// none of them was used and some were bad.
  void check(int file, int64_t records) const;

 private:
  struct Bad {
    RecordPlace place;
    RecordProblem problem;
    std::string detail;
  };
  const InputSet& inputs_;
  std::set<int> used_;
  std::map<int, Bad> first_bad_;  ///< by file
};

/// Throws InputError for a file of `records` records of which none is used. The arguments
/// describe the first bad record.
[[noreturn]] void refuse_unused(const InputSet& inputs, const RecordPlace& place,
                                int64_t records, RecordProblem problem,
                                const std::string& detail);

}  // namespace longhaul::data
