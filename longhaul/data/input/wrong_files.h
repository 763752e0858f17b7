#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "longhaul/data/input/input_set.h"
#include "longhaul/data/input/record.h"

namespace longhaul::data {

/// Returns what a whole file is, and what to do, where a record with this problem comes
/// from a file of another form: one JSON array, for example, or text in UTF-16. Returns
/// an empty text where the record alone is wrong. Reads the beginning of the file.
std::string problem_of_file(const InputFile& file, RecordProblem problem);

/// Returns the message about a broken record: the problem of its file, if there is one,
/// else "PLACE: PROBLEM: DETAIL" and `advice`. Some problems have an advice of their own.
std::string tell_broken(const InputSet& inputs, const RecordPlace& place,
                        RecordProblem problem, const std::string& detail,
                        std::string_view advice = kRecordAdvice);

/// Throws InputError with the text that tell_broken() returns.
[[noreturn]] void fail_record(const InputSet& inputs, const RecordPlace& place,
                              RecordProblem problem, const std::string& detail);

/// Watches over the files of a build that leaves bad records out. A file of records of
/// which none is used is a wrong file, not some bad records. Not thread-safe.
class FilesInUse {
 public:
  explicit FilesInUse(const InputSet& inputs) : inputs_(inputs) {}
  /// Notes that a record of the file is a document, or a copy of one.
  void use(int file) { used_.insert(file); }
  /// Notes a bad record. Throws InputError where the file is of another form.
  void drop(const RecordPlace& place, RecordProblem problem, const std::string& detail);
  /// Throws InputError where no record of a whole file was used and some were bad.
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

/// Throws InputError for a file of records of which none is used. The first of its bad
/// records is named.
[[noreturn]] void refuse_unused(const InputSet& inputs, const RecordPlace& place,
                                int64_t records, RecordProblem problem,
                                const std::string& detail);

}  // namespace longhaul::data
