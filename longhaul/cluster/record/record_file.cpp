#include "longhaul/cluster/record/record_file.h"

#include <exception>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"

namespace longhaul::cluster {
namespace {

constexpr uint64_t kMostRecordBytes = uint64_t{1} << 22;

}  // namespace

std::optional<Json> RecordFile::load() const {
  if (!fs::exists(path_)) return std::nullopt;
  try {
    return read_json(path_, kMostRecordBytes);
  } catch (const InputError& problem) {
    if (problem.area() != "json") throw;
    fail_input("cluster", "{}; {}", problem.message(), advice_);
  }
}

void RecordFile::refuse(const Json::exception& problem) const {
  fail_input("cluster", "{}: is no {} ({}); {}", path_.string(), what_, words_of(problem),
             advice_);
}

void RecordFile::replace(const Json& value, int indent) const {
  make_directories_durable(path_.parent_path());
  write_text_atomic(path_, json_text(value, indent) + (indent < 0 ? "" : "\n"));
}

bool try_record(system::Logger& log, const std::string& consequence,
                const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (const std::exception& problem) {
    log.warning("{}; {}", to_error(problem).what(), consequence);
    return false;
  }
}

}  // namespace longhaul::cluster
