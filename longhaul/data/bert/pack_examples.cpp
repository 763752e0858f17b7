#include "longhaul/data/bert/pack_examples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json/json_fields.h"
#include "longhaul/data/bert/bert_record.h"
#include "longhaul/data/bert/example_source.h"
#include "longhaul/data/store/build/shard_writer.h"
#include "longhaul/data/store/resumable_build.h"

namespace longhaul::data {
namespace {

/// Writes examples in the form in which rows.bin holds them.
class RowWriter {
 public:
  RowWriter(const fs::path& dir, const ExampleForm& form)
      : form_(form), file_(dir, kExampleRows), row_(form.bytes()) {}

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
    info.hash_file = write_hash_file(dir, "hashes.json", blocks);
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
  fail_input("data",
             "{}: its rows have {} masked positions, but rows of the shards before it "
             "have {}; give each kind an entry of its own",
             path.string(), shape.predictions, first->predictions);
}

/// Returns the fingerprint of the tokenizer in the records beside the shards; empty if
/// there is no record.
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
      fail_input("data",
                 "{}: made with another tokenizer (fingerprint {}) than the shards "
                 "before it ({}); use shards of one tokenizer",
                 dir.string(), own, known);
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

BuildKind packed_kind() {
  return {.record = kExampleStoreRecord,
          .foreign =
              "exists and holds no packed examples; remove it, and the next start "
              "packs the shards",
          .standing = "holds packed examples already",
          .occupation = "packs these shards",
          .object = "the packed examples",
          .advice = "wait until it is done"};
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
  ResumableBuild build(options.out, packed_kind());
  build.lock_beside();
  if (is_example_store(build.out())) return ExampleStoreInfo::read(build.out());
  const fs::path& work = build.work();
  make_directories_durable(work);
  build.clear();  // an interrupted start left nothing that can be used
  const ExampleStoreInfo info = write_examples(reader, options, work);
  write_text_atomic(work / kExampleStoreRecord, info.text());
  build.commit(/*replace=*/false);
  return info;
}

}  // namespace longhaul::data
