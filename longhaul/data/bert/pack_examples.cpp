#include "longhaul/data/bert/pack_examples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json_fields.h"
#include "longhaul/data/bert/bert_record.h"
#include "longhaul/data/bert/example_source.h"
#include "longhaul/data/store/build/shard_writer.h"
#include "longhaul/system/owner_lock.h"

namespace longhaul::data {
namespace {

/// Rows as they lie in the file.
class RowWriter {
 public:
  RowWriter(const fs::path& dir, const ExampleForm& form)
      : form_(form), file_(dir, kExampleRows, temporary_suffix()), row_(form.bytes()) {}

  void add(const BertShard& shard, int64_t row) {
    std::ranges::fill(row_, std::byte{0});
    const auto positions = shard.masked_lm_positions(row);
    const auto end = std::ranges::find(positions, 0);
    put(0, static_cast<uint32_t>(std::ranges::count(shard.input_mask(row), 1)));
    put(4, static_cast<uint16_t>(end - positions.begin()));
    put(6, static_cast<uint16_t>(shard.next_sentence_label(row)));
    put_ids(form_.tokens(), shard.input_ids(row));
    put_ids(form_.ids(), shard.masked_lm_ids(row));
    for (size_t i = 0; i < positions.size(); ++i) {
      put(form_.positions() + 2 * i, static_cast<uint16_t>(positions[i]));
    }
    const auto segments = shard.segment_ids(row);
    for (size_t i = 0; i < segments.size(); ++i) {
      row_[form_.segments() + i / 8] |= static_cast<std::byte>(segments[i] << (i % 8));
    }
    file_.write(row_);
    ++rows_;
  }

  void finish(const fs::path& dir, ExampleStoreInfo& info) {
    Json blocks = Json::object();
    info.form = form_;
    info.rows = rows_;
    info.max_token_id = max_token_id_;
    info.row_file = file_.finish(blocks);
    HashedFile hashes(dir, "hashes.json", temporary_suffix());
    const std::string text = json_text(blocks) + "\n";
    hashes.write(std::as_bytes(std::span(text)));
    Json unused;
    info.hash_file = hashes.finish(unused);
  }

 private:
  template <typename Value>
  void put(uint64_t place, Value value) {
    std::memcpy(row_.data() + place, &value, sizeof(value));
  }
  void put_ids(uint64_t place, std::span<const int32_t> ids) {
    for (const int32_t id : ids) {
      max_token_id_ = std::max(max_token_id_, int64_t{id});
      if (form_.token_bytes == 2) {
        put(place, static_cast<uint16_t>(id));
      } else {
        put(place, id);
      }
      place += static_cast<uint64_t>(form_.token_bytes);
    }
  }

  ExampleForm form_;
  HashedFile file_;
  std::vector<std::byte> row_;
  int64_t rows_ = 0;
  int64_t max_token_id_ = 0;
};

void check_shape(const fs::path& path, const ShardShape& shape,
                 const PackExamplesOptions& options, const ExampleForm* first) {
  check_example_length(path, shape.seq_len, options.seq_len);
  if (first == nullptr || shape.predictions == first->predictions) return;
  throw InputError(
      "data",
      fmt::format(
          "{}: {} masked positions a row, the shards before it have {}; give each "
          "kind an entry of its own",
          path.string(), shape.predictions, first->predictions));
}

/// What the records beside the shards say of the tokenizer; empty: nothing.
std::string tokenizer_of(const std::vector<fs::path>& shards) {
  std::set<fs::path> dirs;
  for (const fs::path& shard : shards) dirs.insert(shard.parent_path());
  std::string known;
  for (const fs::path& dir : dirs) {
    if (!fs::exists(dir / kBertRecordName)) continue;
    const Json plan = BertRecord::read(dir).plan;
    const JsonFields fields(plan, "data", (dir / kBertRecordName).string());
    const auto own = fields.get<std::string>("tokenizer");
    if (!known.empty() && own != known) {
      throw InputError("data", fmt::format("{}: made with another tokenizer (fingerprint "
                                           "{}) than the shards before it ({})",
                                           dir.string(), own, known));
    }
    known = own;
  }
  return known;
}

ExampleStoreInfo write_examples(ShardReader& reader, const PackExamplesOptions& options,
                                const fs::path& dir) {
  ExampleStoreInfo info;
  info.tokenizer_fingerprint = tokenizer_of(options.shards);
  std::optional<RowWriter> writer;
  const auto total = static_cast<int64_t>(options.shards.size());
  for (const fs::path& path : options.shards) {
    const BertShard shard = reader.read(path, options.vocab_size);
    const ShardShape& shape = shard.shape();
    check_shape(path, shape, options, writer ? &info.form : nullptr);
    if (!writer) {
      info.form = {shape.seq_len, shape.predictions,
                   options.vocab_size <= UINT16_MAX + 1 ? 2 : 4};
      writer.emplace(dir, info.form);
    }
    for (int64_t row = 0; row < shape.rows; ++row) writer->add(shard, row);
    info.origins.push_back({path.string(), fs::file_size(path), shape.rows});
    if (options.progress) options.progress(std::ssize(info.origins), total);
  }
  writer->finish(dir, info);
  return info;
}

}  // namespace

std::string shards_identity(const std::vector<fs::path>& shards) {
  std::string identity;
  for (const fs::path& path : shards) {
    const auto changed = fs::last_write_time(path).time_since_epoch().count();
    identity += fmt::format("{} {} {}\n", fs::absolute(path).string(),
                            fs::file_size(path), changed);
  }
  return hash_hex(identity);
}

ExampleStoreInfo pack_examples(ShardReader& reader, const PackExamplesOptions& options) {
  LH_CHECK(!options.shards.empty(), "data", "no shards to pack");
  fs::path work = options.out;
  work += ".building";
  fs::path lock_file = work;
  lock_file += ".lock";
  OwnerLockOptions words;
  words.area = "data";
  words.object = "the packed examples";
  words.occupation = "packs these shards";
  words.advice = "wait until it is done";
  OwnerLock lock = OwnerLock::acquire(lock_file, words);
  if (is_example_store(options.out)) return ExampleStoreInfo::read(options.out);
  fs::remove_all(work);
  make_directories_durable(work);
  const ExampleStoreInfo info = write_examples(reader, options, work);
  write_text_atomic(work / kExampleStoreRecord, info.text());
  lock.check();
  fs::rename(work, options.out);
  sync_directory(options.out.has_parent_path() ? options.out.parent_path()
                                               : fs::path("."));
  lock.release();
  fs::remove(lock_file);
  return info;
}

}  // namespace longhaul::data
