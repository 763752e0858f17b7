#include "longhaul/data/store/build/build_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "longhaul/base/json.h"
#include "longhaul/data/store/store_fields.h"

namespace longhaul::data {
namespace {

OrderedJson to_json(const FinishedRange& finished) {
  return {{"file", finished.range.file}, {"begin", finished.range.begin},
          {"end", finished.range.end},   {"bytes", finished.stored_bytes},
          {"hash", finished.hash},       {"records", finished.records},
          {"lines", finished.lines}};
}

FinishedRange range_from_json(const Json& json, const fs::path& file) {
  const JsonFields fields = store_fields(json, file);
  FinishedRange finished;
  finished.range = {fields.get<int>("file"), fields.get<uint64_t>("begin"),
                    fields.get<uint64_t>("end")};
  finished.stored_bytes = fields.get<uint64_t>("bytes");
  finished.hash = fields.get<std::string>("hash");
  finished.records = fields.count("records");
  finished.lines = fields.count("lines");
  return finished;
}

}  // namespace

fs::path BuildDirectory::file(const char* name, int number, const char* ending) const {
  return root / fmt::format("{}{:05}{}", name, number, ending);
}

int64_t PartRecord::bad() const {
  int64_t sum = 0;
  for (const auto& [problem, count] : left_out) {
    if (problem != RecordProblem::Empty) sum += count;
  }
  return sum;
}

std::string bad_record_line(const BadRecord& bad) {
  // The detail may hold bytes of a hostile file, which json_text makes valid UTF-8.
  return json_text(Json{{"file", bad.place.file},
                        {"line", bad.place.line},
                        {"offset", bad.place.offset},
                        {"range_begin", bad.place.range_begin},
                        {"problem", static_cast<int>(bad.problem)},
                        {"detail", bad.detail}}) +
         "\n";
}

BadRecord parse_bad_record(std::string_view line, const fs::path& file) {
  const Json json = parse_json(line, file.string());
  const JsonFields fields = store_fields(json, file);
  BadRecord bad;
  bad.place.file = fields.get<int>("file");
  bad.place.line = fields.get<int64_t>("line");
  bad.place.offset = fields.get<int64_t>("offset");
  bad.place.range_begin = fields.get<uint64_t>("range_begin");
  bad.problem = static_cast<RecordProblem>(fields.get<int>("problem"));
  bad.detail = fields.get<std::string>("detail");
  return bad;
}

void write_part_record(const fs::path& path, const PartRecord& record) {
  const auto& [train, validation] = record.sides;
  OrderedJson json;
  if (train.shard) json["train"] = to_json(*train.shard);
  if (validation.shard) json["validation"] = to_json(*validation.shard);
  json["train_counts"] = to_json(train.counts);
  json["validation_counts"] = to_json(validation.counts);
  json["left_out"] = OrderedJson::array();
  for (const auto& [problem, count] : record.left_out) {
    json["left_out"].push_back({static_cast<int>(problem), count});
  }
  json["duplicates"] = record.duplicates;
  json["padding"] = record.padding;
  json["ranges"] = OrderedJson::array();
  for (const FinishedRange& range : record.ranges) {
    json["ranges"].push_back(to_json(range));
  }
  for (size_t i = 0; i < record.findings.size(); ++i) {
    const auto& [count, place] = record.findings[i];
    if (count == 0) continue;
    json["findings"].push_back(
        {i, count, place.file, place.line, place.offset, place.range_begin});
  }
  if (record.first_text) json["first_text"] = *record.first_text;
  write_text_atomic(path, json_text(json) + "\n");
}

PartRecord read_part_record(const fs::path& path) {
  const Json json = read_json(path);
  const JsonFields fields = store_fields(json, path);
  const auto side = [&](const char* shard, const char* counts) {
    ShardSide read;
    if (fields.has(shard)) read.shard = shard_from_json(fields.field(shard), path);
    read.counts = counts_from_json(fields.field(counts), path);
    return read;
  };
  PartRecord record;
  record.sides = {side("train", "train_counts"), side("validation", "validation_counts")};
  for (const auto& [problem, count] :
       fields.get<std::vector<std::pair<int, int64_t>>>("left_out")) {
    record.left_out[static_cast<RecordProblem>(problem)] = count;
  }
  record.duplicates = fields.count("duplicates");
  record.padding = fields.count("padding");
  for (const Json& range : fields.field("ranges")) {
    record.ranges.push_back(range_from_json(range, path));
  }
  if (fields.has("findings")) {
    using Row = std::tuple<size_t, int64_t, int, int64_t, int64_t, uint64_t>;
    for (const auto& [i, count, file, line, offset, begin] :
         fields.get<std::vector<Row>>("findings")) {
      record.findings.at(i) = {count, {file, line, offset, begin}};
    }
  }
  if (fields.has("first_text")) record.first_text = fields.get<std::string>("first_text");
  return record;
}

std::vector<int> parts_of_process(const std::vector<InputPart>& parts, int process,
                                  int processes) {
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return parts[a].stored_bytes > parts[b].stored_bytes;
  });
  // The largest part goes first. Each part goes to the process with the fewest bytes so
  // far.
  std::vector<uint64_t> load(static_cast<size_t>(processes));
  std::vector<int> mine;
  for (const size_t part : order) {
    const auto least = std::min_element(load.begin(), load.end());
    // An empty file counts as one byte, or else one process would get all empty files.
    *least += parts[part].stored_bytes + 1;
    if (least - load.begin() == process) mine.push_back(static_cast<int>(part));
  }
  std::sort(mine.begin(), mine.end());
  return mine;
}

}  // namespace longhaul::data
