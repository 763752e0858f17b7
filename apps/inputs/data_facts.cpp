#include "apps/inputs/data_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "apps/inputs/training_data.h"
#include "longhaul/base/error.h"
#include "longhaul/data/bert/example_store.h"
#include "longhaul/data/bert/shard_reader.h"
#include "longhaul/data/input/input_set.h"
#include "longhaul/data/input/path_pattern.h"
#include "longhaul/data/input/wrong_files.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/sources/arrow_source.h"
#include "longhaul/data/store/store.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/system/terminal.h"
#include "longhaul/train/start/packed_data.h"

namespace longhaul::apps {
namespace {

using Paths = std::vector<fs::path>;

[[noreturn]] void refuse_text(const DataQuestion& question, const std::string& found) {
  const std::string store = "data/" + name_of_data(question.path);
  using system::shell_word;
  fail_input("data",
             "{}: {}; make a token store of the text first: longhaul data build {} "
             "--tokenizer {} --out {} --holdout 1%; then: longhaul new {} {}",
             question.path, found, shell_word(question.path), shell_word(question.model),
             shell_word(store), shell_word(question.model), shell_word(store));
}

/// Counts the token ids in data that is tokenized already, until all are counted or the
/// time is up.
DataFacts count_ids(const DataQuestion& question) {
  data::InputOptions options;
  options.arguments = {question.path};
  options.field = question.field;
  const data::InputSet inputs(options);
  data::InputPart part;
  for (size_t i = 0; i < inputs.files().size(); ++i) {
    part.ranges.push_back({static_cast<int>(i), 0, data::InputRange::kToEnd});
  }
  part.stored_bytes = inputs.stored_bytes();
  const auto reader = inputs.open(part);
  DataFacts facts;
  facts.kind = "ready ids";
  facts.packed = true;
  facts.has_fields = true;
  data::RawRecord record;
  const system::Stopwatch watch;
  while (reader->next(record)) {
    data::ParsedRecord parsed = data::parse_record(record, options);
    if (parsed.problem == data::RecordProblem::Empty) continue;
    if (parsed.problem == data::RecordProblem::FieldMissing) {
      refuse_text(question, fmt::format("{} has no field '{}' with ready ids (--field "
                                        "names another; chats need --chat)",
                                        inputs.describe(record.place), question.field));
    }
    if (parsed.problem != data::RecordProblem::None) {
      data::fail_record(inputs, record.place, parsed.problem, parsed.detail);
    }
    if (parsed.kind == data::ParsedRecord::Kind::Text) {
      refuse_text(question, "holds text, not ready ids");
    }
    facts.tokens += std::ssize(parsed.ids);
    const uint64_t read = reader->bytes_read();
    if (watch.seconds() < question.seconds || read == 0) continue;
    const double share =
        static_cast<double>(read) / static_cast<double>(part.stored_bytes);
    facts.tokens = static_cast<int64_t>(static_cast<double>(facts.tokens) /
                                        std::clamp(share, 1e-9, 1.0));
    facts.exact = false;
    break;
  }
  return facts;
}

/// Reads the first shard only: the other shards have the same form, and about as many
/// rows.
DataFacts of_shards(const DataQuestion& question, const Paths& paths) {
  data::refuse_field(paths.front(), question.field, "a shard of BERT's examples");
  LH_CHECK(question.shards != nullptr, "data", "HDF5 shards without a reader");
  const Paths shards = data::find_bert_shards(paths);
  const data::BertShard first =
      question.shards->read(shards.front(), question.vocab_size);
  DataFacts facts;
  facts.kind = "shards of BERT's examples";
  facts.packed = true;
  facts.exact = shards.size() == 1;
  facts.fixed_length = first.shape().seq_len;
  facts.tokens =
      first.shape().rows * first.shape().seq_len * static_cast<int64_t>(shards.size());
  return facts;
}

bool is_store(const fs::path& path) {
  return data::is_token_store(path) || data::is_example_store(path);
}

DataFacts of_directory(const DataQuestion& question, const fs::path& path) {
  DataFacts facts;
  if (data::is_token_store(path)) {
    const data::StoreInfo info = data::read_store_info(path);
    facts.records = info.kind;
    facts.kind = info.kind == "text" ? "token store" : "token store of " + info.kind;
    facts.tokens = info.tokens;
    facts.longest = info.counts.lengths.longest * (info.kind == "pairs" ? 2 : 1);
  } else if (data::is_example_store(path)) {
    const data::ExampleStoreInfo info = data::ExampleStoreInfo::read(path);
    facts.kind = "BERT's examples";
    facts.fixed_length = info.form.seq_len;
    facts.tokens = info.rows * info.form.seq_len;
  } else {
    const data::SavedRows rows = data::saved_rows(path, question.field);
    facts.kind = "save_to_disk directory";
    facts.has_fields = true;
    facts.fixed_length = rows.longest;
    facts.tokens = rows.rows * rows.longest;
  }
  return facts;
}

/// Returns the paths of the stores inside a directory that is no store itself; an empty
/// text if there are none.
std::string stores_in(const fs::path& path) {
  if (!fs::is_directory(path) || is_store(path)) return {};
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (is_store(entry.path())) names.insert(entry.path().string());
  }
  return fmt::format("{}", fmt::join(names, " "));
}

void add(DataFacts& all, const DataFacts& more) {
  if (all.kind.empty()) {
    all.kind = more.kind;
    all.records = more.records;
  }
  if (all.records != more.records) {
    fail_input("data", "{} names a {} and a {}; name stores of one kind", all.path,
               all.kind, more.kind);
  }
  all.longest = std::max(all.longest, more.longest);
  all.has_fields = all.has_fields || more.has_fields;
  all.tokens += more.tokens;
  all.exact = all.exact && more.exact;
  all.packed = all.packed || more.packed;
  all.fixed_length = std::max(all.fixed_length, more.fixed_length);
}

}  // namespace

std::string name_of_data(const std::string& given) {
  fs::path path = given;
  while (path.has_parent_path() && path.has_relative_path() &&
         (path.filename().empty() || data::is_pattern(path.filename()))) {
    path = path.parent_path();
  }
  const std::string name = path.filename().string();
  const std::string plain = name.substr(0, name.find('.'));
  const bool names = !plain.empty() && plain != "/" && !data::is_pattern(plain);
  return names ? plain : "mine";
}

DataFacts data_facts(const DataQuestion& question) {
  const Paths paths = data::expand_paths({question.path});
  DataFacts all;
  all.path = question.path;
  if (data::names_bert_shards(paths.front())) {
    add(all, of_shards(question, paths));
    return all;
  }
  const auto packs = [&](const fs::path& path) {
    return train::needs_packing(path, question.field);
  };
  if (std::ranges::all_of(paths, packs)) {
    add(all, count_ids(question));
    return all;
  }
  for (const fs::path& path : paths) {
    if (fs::is_regular_file(path)) {
      refuse_text(question, paths.size() == 1
                                ? "is no file of ready ids"
                                : path.string() + " is no file of ready ids");
    }
    if (const std::string stores = stores_in(path); !stores.empty()) {
      fail_input("data",
                 "{} is a directory of token stores; name the stores that you mean: {}",
                 path.string(), stores);
    }
    const bool known = is_store(path) || data::is_saved_dataset(path);
    const bool of_another_kind = !fs::exists(path) || fs::exists(path / "config.json") ||
                                 fs::exists(path / "dataset_dict.json");
    if (!known && of_another_kind) (void)data::open_source(path, 2);  // says what it is
    if (!known)
      refuse_text(question, "a directory without a store and without ready ids");
    add(all, of_directory(question, path));
  }
  for (const fs::path& path : paths) {
    if (const fs::path beside = held_out_of(path); !beside.empty()) {
      all.held_out.push_back(beside.string());
    }
  }
  return all;
}

}  // namespace longhaul::apps
