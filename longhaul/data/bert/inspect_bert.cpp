#include "longhaul/data/bert/inspect_bert.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/text.h"
#include "longhaul/data/bert/bert_record.h"

namespace longhaul::data {
namespace {

JsonFields part(const Json& json, const fs::path& dir) {
  return {json, "data", (dir / kBertRecordName).string(), "build the examples again"};
}

std::string percent(int64_t part, int64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) /
                                     static_cast<double>(std::max<int64_t>(whole, 1)));
}

std::string left_out(const JsonFields& reading) {
  std::string text;
  int64_t dropped = 0;
  const JsonFields causes = reading.inside(reading.field("dropped"));
  for (const auto& [cause, count] : reading.field("dropped").items()) {
    dropped += causes.count(cause.c_str());
  }
  if (dropped > 0) {
    text += fmt::format("left out        {} records\n{}", grouped(dropped),
                        reading.get<std::string>("dropped_examples"));
  }
  const auto note = [&](const char* name, const char* what) {
    const int64_t count = reading.count(name);
    if (count > 0) text += fmt::format("                {} {}\n", grouped(count), what);
  };
  note("empty_documents", "texts without a token were left out");
  note("cut_sentences", "sentences were longer than a row and were cut into pieces");
  note("special_tokens_in_text", "special tokens stand in the texts themselves");
  return text;
}

std::string figures(const BertRecord& record, const JsonFields& plan,
                    const JsonFields& reading, uint64_t bytes) {
  const ExampleCounts& counts = record.counts;
  const int64_t chosen = counts.masks.masked + counts.masks.kept + counts.masks.replaced;
  const int64_t length = plan.count("seq_len");
  return fmt::format(
      "text            {} documents, {} sentences, {} tokens\n{}"
      "examples        {} of {} tokens in {} shards, {}, {} passes over the documents\n"
      "                tokens fill {} of the rows, {} tokens were cut off at the ends\n"
      "                {} have a second text from another document\n"
      "masked          {} of the tokens, at most {} in an example: {} [MASK], {} kept, "
      "{} replaced\n",
      grouped(reading.count("documents")), grouped(reading.count("sentences")),
      grouped(reading.count("tokens")), left_out(reading), grouped(counts.examples),
      length, record.shards.size(), human_bytes(bytes), plan.count("duplicates"),
      percent(counts.tokens, counts.examples * std::max<int64_t>(length, 1)),
      grouped(counts.cut_tokens), percent(counts.random_next, counts.examples),
      percent(chosen, counts.tokens), plan.count("max_predictions"),
      percent(counts.masks.masked, chosen), percent(counts.masks.kept, chosen),
      percent(counts.masks.replaced, chosen));
}

void describe_examples(const fs::path& path, const InspectOptions& options,
                       DataDescription& result) {
  check_bert_directory(path);
  const BertRecord record = BertRecord::read(path);
  const JsonFields plan = part(record.plan, path);
  uint64_t bytes = 0;
  for (const BertShardInfo& shard : record.shards) bytes += shard.bytes;
  OrderedJson& json = result.json;
  json["examples"] = record.counts.examples;
  json["seq_len"] = plan.count("seq_len");
  json["max_predictions"] = plan.count("max_predictions");
  json["shards"] = record.shards.size();
  json["bytes"] = bytes;
  json["tokenizer"] = plan.get<std::string>("tokenizer");
  json["counts"] = record.counts.to_json();
  json["reading"] = record.reading;
  json["options"] = record.plan;
  result.text = fmt::format("BERT examples   {}, complete\n", path.string()) +
                figures(record, plan, part(record.reading, path), bytes) +
                fmt::format("tokenizer       {}\n", plan.get<std::string>("tokenizer"));
  if (options.global_size <= 0) return;
  const double steps = static_cast<double>(record.counts.examples) /
                       static_cast<double>(options.global_size);
  json["steps"] = steps;
  result.text += fmt::format("epoch           {:.2f} steps of {}\n", steps,
                             grouped(options.global_size));
}

}  // namespace

std::optional<DataDescription> describe_bert(const fs::path& path,
                                             const InspectOptions& options) {
  if (!fs::exists(path / kBertRecordName)) return std::nullopt;
  return describe_kind(
      "bert_examples", "BERT examples", path,
      [&](DataDescription& result) { describe_examples(path, options, result); });
}

uint64_t verify_bert(const fs::path& path) {
  check_bert_directory(path);
  uint64_t bytes = 0;
  for (const BertShardInfo& shard : BertRecord::read(path).shards) {
    check_hash(path / shard.name, shard);
    bytes += shard.bytes;
  }
  return bytes;
}

}  // namespace longhaul::data
