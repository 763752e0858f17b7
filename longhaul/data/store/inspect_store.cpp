#include "longhaul/data/store/inspect_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/chat/chat_encoder.h"
#include "longhaul/data/input/file_kinds.h"
#include "longhaul/data/input/input_directory.h"
#include "longhaul/data/input/input_set.h"
#include "longhaul/data/input/wrong_files.h"
#include "longhaul/data/sources/arrow_source.h"
#include "longhaul/data/store/self_test.h"
#include "longhaul/data/store/show_documents.h"
#include "longhaul/data/store/token_store.h"

namespace longhaul::data {
namespace {

constexpr size_t kListed = 5;
constexpr size_t kNameWidth = 16;
constexpr size_t kFirstIds = 16;

/// A text of lines of the form "name value".
class Table {
 public:
  void row(std::string_view name, const std::string& value) {
    text_ += fmt::format("{:<{}}{}\n", name, kNameWidth, value);
  }
  /// Adds a row whose value is formatted as by fmt::format.
  template <class First, class... Rest>
  void row(std::string_view name, fmt::format_string<First, Rest...> value, First&& first,
           Rest&&... rest) {
    row(name,
        fmt::format(value, std::forward<First>(first), std::forward<Rest>(rest)...));
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string percent(int64_t part, int64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.1f}%",
                     100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

void describe_lengths(const LengthHistogram& lengths, int64_t documents, Table& table,
                      OrderedJson& json) {
  json["shortest"] = lengths.shortest;
  json["longest"] = lengths.longest;
  json["lengths"] = OrderedJson::array();
  table.row("lengths", "{} to {} tokens", grouped(lengths.shortest),
            grouped(lengths.longest));
  for (size_t k = 0; k < lengths.counts.size(); ++k) {
    if (lengths.counts[k] == 0) continue;
    const int64_t from = int64_t{1} << k;
    const int64_t to = 2 * from - 1;
    table.row("", "{:>13} to {:>13}  {:>13} {:<9} {:>6}", grouped(from), grouped(to),
              grouped(lengths.counts[k]),
              lengths.counts[k] == 1 ? "document" : "documents",
              percent(lengths.counts[k], documents));
    json["lengths"].push_back(
        {{"from", from}, {"to", to}, {"documents", lengths.counts[k]}});
  }
}

/// Adds the number of sequences and steps of an epoch. `rows` is the number of ready
/// sequences of seq_len tokens; -1 when tokens are packed.
void describe_epoch(int64_t tokens, int64_t rows, const InspectOptions& options,
                    Table& table, OrderedJson& json) {
  if (options.seq_len <= 0) return;
  const int64_t sequences =
      rows >= 0 ? rows : std::max<int64_t>(tokens - 1, 0) / options.seq_len;
  const int64_t left =
      rows >= 0 ? 0 : std::max<int64_t>(tokens - 1 - sequences * options.seq_len, 0);
  OrderedJson epoch = {
      {"seq_len", options.seq_len}, {"sequences", sequences}, {"tokens_left", left}};
  std::string text =
      fmt::format("{} of {} per epoch", counted(sequences, "sequence"), options.seq_len);
  if (options.global_size > 0) {
    const double steps =
        static_cast<double>(sequences) / static_cast<double>(options.global_size);
    text += fmt::format(", {:.2f} steps of {}", steps, grouped(options.global_size));
    epoch["global_size"] = options.global_size;
    epoch["steps"] = steps;
  }
  table.row("epoch",
            text + fmt::format("; {} left over at the end", counted(left, "token")));
  json["epoch"] = epoch;
}

void describe_origins(const StoreInfo& info, Table& table, OrderedJson& json) {
  uint64_t bytes = 0;
  int64_t records = 0;
  for (const StoreOrigin& origin : info.origins) {
    bytes += origin.bytes;
    records += origin.records;
  }
  json["sources"] = {
      {"files", info.origins.size()}, {"bytes", bytes}, {"records", records}};
  table.row("made from", "{}, {}, {}", counted(std::ssize(info.origins), "file"),
            human_bytes(bytes), counted(records, "record"));
  for (size_t i = 0; i < std::min(kListed, info.origins.size()); ++i) {
    const StoreOrigin& origin = info.origins[i];
    table.row("", "{}  {}  {}  {}", origin.path, human_bytes(origin.bytes),
              counted(origin.records, "record"), origin.hash);
  }
  if (info.origins.size() > kListed) {
    table.row("", "... and {} more", info.origins.size() - kListed);
  }
}

void describe_dropped(const StoreInfo& info, Table& table, OrderedJson& json) {
  json["dropped"] = info.dropped;
  json["padding_removed"] = info.padding_removed;
  for (const auto& [cause, count] : info.dropped) {
    table.row("left out", "{}: {}", counted(count, "record"), cause);
  }
  if (info.bad_records) table.row("", "{} lists the broken ones", info.bad_records->name);
  if (info.padding_removed > 0) {
    table.row("", "{} positions of padding behind ready ids",
              grouped(info.padding_removed));
  }
}

void describe_text(const StoreInfo& info, Table& table, OrderedJson& json) {
  json["text_bytes"] = info.counts.text_bytes;
  json["ready_documents"] = info.counts.ready_documents;
  json["not_targets"] = info.counts.not_targets;
  if (info.counts.text_bytes > 0) {
    table.row(
        "text", "{}, {:.2f} bytes per token", human_bytes(info.counts.text_bytes),
        static_cast<double>(info.counts.text_bytes) / static_cast<double>(info.tokens));
  }
  if (info.counts.ready_documents > 0) {
    table.row("ready ids", "{} came as ids",
              counted(info.counts.ready_documents, "document"));
  }
  if (info.counts.not_targets > 0) {
    table.row("targets", "{} tokens ({}) are not targets",
              grouped(info.counts.not_targets),
              percent(info.counts.not_targets, info.tokens));
  }
}

uint64_t stored_bytes(const StoreInfo& info) {
  uint64_t bytes = 0;
  for (const StoreShard& shard : info.shards) {
    for (const StoreFile& file : shard.files()) bytes += file.bytes;
  }
  return bytes;
}

// The number of tokens that the sample takes from the document's beginning and from its
// end.
constexpr int64_t kFirst = 40;
constexpr int64_t kLast = 12;

std::string decode(const TokenStore& store, const tokenizer::Tokenizer& tokenizer,
                   int64_t begin, int64_t end) {
  std::vector<int32_t> ids(static_cast<size_t>(end - begin));
  store.read(begin, ids);
  const std::string text = tokenizer.decode({ids.begin(), ids.end()}, false);
  std::string line;
  for (const char c : text) {
    if (c == '\n') {
      line += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      line += ' ';  // no control sequence of a corpus reaches the terminal
    } else {
      line += c;
    }
  }
  return line;
}

/// Returns the beginning and the end of a store's first document on one line, as training
/// will see the document. Special tokens are written out.
std::string decoded_sample(const TokenStore& store,
                           const tokenizer::Tokenizer& tokenizer) {
  const int64_t end = store.document_end(0);
  if (end <= kFirst + kLast) return decode(store, tokenizer, 0, end);
  return decode(store, tokenizer, 0, kFirst) + " [...] " +
         decode(store, tokenizer, end - kLast, end);
}

/// Describes the store's tokenizer. Without a given tokenizer it loads the store's own
/// tokenizer, and throws InputError when this tokenizer no longer makes the ids of the
/// self-test. Returns the documents that options.show asks for.
std::string describe_tokenizer(const TokenStore& store, const InspectOptions& options,
                               Table& table, OrderedJson& json) {
  const tokenizer::Tokenizer* given = options.tokenizer;
  const StoreInfo& info = store.info();
  json["tokenizer"] = info.tokenizer_fingerprint;
  json["special_tokens"] = info.special_tokens;
  table.row("special tokens", info.special_tokens);
  if (info.counts.special_in_text > 0) {
    table.row("", "{} BOS or EOS tokens stand in the texts themselves",
              grouped(info.counts.special_in_text));
  }
  json["special_tokens_in_text"] = info.counts.special_in_text;
  if (info.tokenizer_files.empty()) {
    table.row("tokenizer", "none: made from ready ids");
    if (options.show > 0) {
      fail_input("data", "{}: made from ready ids, which no tokenizer makes text of",
                 store.path().string());
    }
    return {};
  }
  std::unique_ptr<tokenizer::Tokenizer> loaded;
  if (given == nullptr) {
    loaded = tokenizer::Tokenizer::load(store.path() / "tokenizer");
    check_self_test(store.path(), *loaded, "this program, with the store's tokenizer,");
    given = loaded.get();
  }
  table.row("tokenizer",
            info.tokenizer_fingerprint + (loaded ? ", its self-test holds" : ""));
  const std::string sample = decoded_sample(store, *given);
  json["sample"] = sample;
  table.row("first document", sample);
  if (options.show == 0) return {};
  ShownDocuments shown = show_documents(store, *given, options.show, options.colour);
  json["shown"] = std::move(shown.json);
  return "\n" + shown.text;
}

/// Says of a store of chats or pairs how it was made and what was seen on the way.
void describe_chat(const StoreInfo& info, Table& table, OrderedJson& json) {
  json["documents_are"] = info.kind;
  if (!info.chat) return;
  const StoreChat& chat = *info.chat;
  if (info.kind == "pairs") {
    table.row("pairs", "{}, each a chosen and a rejected document",
              grouped(info.documents / 2));
  }
  table.row("chat template", "{}{}", chat.template_hash,
            chat.day.empty() ? "" : ", which prints the day " + chat.day);
  table.row("learned", chat.targets == "all"    ? "all tokens"
                       : info.kind == "pairs"   ? "the answers"
                       : chat.targets == "last" ? "the assistant's last turns"
                                                : "the assistant's turns");
  OrderedJson findings = OrderedJson::object();
  for (const auto& [name, finding] : chat.findings) {
    findings[name] = {{"count", finding.count}, {"first", finding.first}};
    table.row("", "{} {}, first {}", grouped(finding.count), chat::finding_words_of(name),
              finding.first);
  }
  json["chat"] = {{"template", chat.template_hash},
                  {"targets", chat.targets},
                  {"day", chat.day},
                  {"findings", findings}};
}

void describe_complete(const TokenStore& store, const InspectOptions& options,
                       DataDescription& result) {
  const StoreInfo& info = store.info();
  Table table;
  OrderedJson& json = result.json;
  json["documents"] = info.documents;
  json["tokens"] = info.tokens;
  json["token_bytes"] = info.token_bytes;
  json["shards"] = info.shards.size();
  json["bytes"] = stored_bytes(info);
  json["max_token_id"] = info.counts.max_token_id;
  json["vocab_size"] = info.vocab_size;
  json["selection"] = info.selection;
  json["fingerprint"] = info.fingerprint;
  table.row("documents", grouped(info.documents));
  table.row("tokens", "{} of {} bytes in {}, {:.2f} bytes on disk per token",
            grouped(info.tokens), info.token_bytes,
            counted(std::ssize(info.shards), "shard"),
            static_cast<double>(stored_bytes(info)) / static_cast<double>(info.tokens));
  table.row("largest id", "{} of {}", info.counts.max_token_id, info.vocab_size);
  describe_text(info, table, json);
  describe_lengths(info.counts.lengths, info.documents, table, json);
  describe_epoch(info.tokens, -1, options, table, json);
  table.row("selection", info.selection);
  describe_dropped(info, table, json);
  describe_origins(info, table, json);
  describe_chat(info, table, json);
  const std::string shown = describe_tokenizer(store, options, table, json);
  result.text = fmt::format("token store {}, complete\n{}{}", store.path().string(),
                            table.text(), shown);
}

InputSet inputs_at(const fs::path& path, const InspectOptions& options) {
  InputOptions inputs;
  inputs.arguments = {path.string()};
  inputs.field = options.field;
  return InputSet(inputs);
}

void describe_first_ids(const std::vector<int32_t>& ids, Table& table,
                        OrderedJson& json) {
  const auto shown = std::span(ids).first(std::min(ids.size(), kFirstIds));
  json["first_ids"] = std::vector<int32_t>(shown.begin(), shown.end());
  table.row("first ids", "{}{}", fmt::join(shown, " "),
            shown.size() < ids.size() ? " [...]" : "");
}

/// Describes rows of ids: the first row, and with options.scan also the numbers of rows
/// and tokens, for which it reads all rows.
void describe_rows(const InputSet& set, const InspectOptions& options, Table& table,
                   OrderedJson& json) {
  StoreCounts counts;
  int64_t tokens = 0;
  int64_t rows = 0;
  for (const InputPart& part : set.parts(uint64_t{1} << 40)) {
    const auto reader = set.open(part);
    for (RawRecord record; reader->next(record); record.clear()) {
      const RecordPlace place = record.place;
      const ParsedRecord parsed = parse_record(record, set.options());
      if (parsed.problem != RecordProblem::None) {
        fail_record(set, place, parsed.problem, parsed.detail);
      }
      if (parsed.kind == ParsedRecord::Kind::Text) {
        fail_input("data", "{}: '{}' holds text, not token ids", set.describe(place),
                   set.options().field);
      }
      if (rows == 0) describe_first_ids(parsed.ids, table, json);
      if (!options.scan) return;
      ++rows;
      tokens += static_cast<int64_t>(parsed.ids.size());
      counts.lengths.add(static_cast<int64_t>(parsed.ids.size()));
      counts.not_targets += parsed.not_targets;
    }
  }
  json["rows"] = rows;
  json["tokens"] = tokens;
  json["not_targets"] = counts.not_targets;
  table.row("tokens", "{} without padding in {}", grouped(tokens), counted(rows, "row"));
  describe_lengths(counts.lengths, std::max<int64_t>(rows, 1), table, json);
  const bool as_they_are = counts.lengths.shortest == options.seq_len &&
                           counts.lengths.longest == options.seq_len;
  describe_epoch(tokens, as_they_are ? rows : -1, options, table, json);
}

/// Returns whether a file, or the files of a directory, may hold token ids in place of
/// text, by their names.
bool may_be_ready_ids(const fs::path& path) {
  if (!fs::is_directory(path)) return may_hold_ids(path);
  for (const char* other : {"config.json", "dataset_dict.json"}) {
    if (fs::exists(path / other)) return false;
  }
  const fs::path file = data_file_of(path);
  return !file.empty() && may_hold_ids(file);
}

}  // namespace

DataDescription describe_kind(const char* kind, const char* name, const fs::path& path,
                              const std::function<void(DataDescription&)>& complete) {
  DataDescription result;
  result.json["kind"] = kind;
  result.json["path"] = path.string();
  result.json["complete"] = true;
  try {
    complete(result);
  } catch (const InputError& error) {
    result.complete = false;
    result.json["complete"] = false;
    result.json["problem"] = error.what();
    result.text =
        fmt::format("{} {}, NOT COMPLETE\n{}\n", name, path.string(), error.what());
  }
  return result;
}

std::optional<DataDescription> describe_data(const fs::path& path,
                                             const InspectOptions& options) {
  if (is_saved_dataset(path)) {
    DataDescription result =
        describe_kind("saved_dataset", "Hugging Face save_to_disk directory", path,
                      [&](DataDescription& found) {
                        found.text = describe_saved_dataset(path, options.field);
                      });
    if (!result.complete) return result;
    Table table;
    describe_rows(inputs_at(path, options), options, table, result.json);
    result.text += table.text();
    return result;
  }
  if (!is_token_store(path)) return std::nullopt;
  return describe_kind("token_store", "token store", path, [&](DataDescription& result) {
    describe_complete(TokenStore(path), options, result);
  });
}

std::optional<DataDescription> describe_ready_ids(const fs::path& path,
                                                  const InspectOptions& options) {
  if (!may_be_ready_ids(path)) return std::nullopt;
  const InputSet set = inputs_at(path, options);
  const std::string_view format = format_name(set.files().front().format);
  DataDescription result;
  result.json = {{"kind", "ready_ids"}, {"path", path.string()},
                 {"complete", true},    {"files", set.files().size()},
                 {"format", format},    {"bytes", set.stored_bytes()}};
  Table table;
  table.row("files", "{} of {}, {}", counted(std::ssize(set.files()), "file"), format,
            human_bytes(set.stored_bytes()));
  if (!set.passed_over().empty()) table.row("", set.passed_over());
  describe_rows(set, options, table, result.json);
  result.text = fmt::format("ready ids {}, in the field '{}'\n{}", path.string(),
                            options.field, table.text());
  return result;
}

}  // namespace longhaul::data
