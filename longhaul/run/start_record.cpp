#include "longhaul/run/start_record.h"

#include "longhaul/base/error.h"
#include "longhaul/base/json/json_fields.h"
#include "longhaul/run/files.h"

namespace longhaul::run {

StartRecord::StartRecord(const fs::path& run_dir) : path_(run_dir / kStartsFile) {
  if (!is_seen(path_)) return;
  try {
    const Json json = read_json(path_);
    const JsonFields fields(json, "checkpoint", path_.string());
    const int64_t step = fields.count("step");
    starts_ = static_cast<int>(fields.count("starts"));
    step_ = step;
  } catch (const Error&) {
    starts_ = 0;  // a record that cannot be read accuses nobody
  }
}

void StartRecord::begin(int64_t step) {
  starts_ = failed_starts(step) + 1;
  step_ = step;
  write_text_atomic(path_, json_text(Json{{"step", step_}, {"starts", starts_}}));
}

void StartRecord::done() {
  if (step_ < 0) return;
  step_ = -1;
  try_remove(path_);
}

}  // namespace longhaul::run
