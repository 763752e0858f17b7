#include "longhaul/data/store/build/split_store.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cmath>
#include <mutex>
#include <queue>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/data/store/build/shard_writer.h"
#include "longhaul/data/store/resumable_build.h"
#include "longhaul/data/store/special_tokens.h"
#include "longhaul/data/store/token_store.h"
#include "longhaul/system/cpus.h"
#include "longhaul/system/run_on_threads.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {
namespace {

constexpr size_t kPieceTokens = size_t{1} << 18;

struct Document {
  std::vector<tokenizer::TokenId> tokens;
  std::vector<uint8_t> is_target;  // empty: all tokens are targets
  uint64_t text_bytes = 0;
  std::optional<DocumentOrigin> origin;
};

class Splitter {
 public:
  Splitter(const fs::path& path, const SplitOptions& options)
      : store_(path), options_(options) {
    const StoreInfo& info = store_.info();
    if (info.kind == "pairs") {
      fail_input("data",
                 "{}: a store of pairs, which a split would part; build it again with "
                 "--holdout",
                 path.string());
    }
    if (!info.tokenizer_files.empty()) {
      tokenizer_ = tokenizer::Tokenizer::load(path / "tokenizer");
      const auto policy =
          policy_from_name(info.special_tokens.substr(0, info.special_tokens.find(':')));
      LH_CHECK(policy.has_value(), "data", "special tokens '{}'", info.special_tokens);
      special_ = resolve_special_tokens(*tokenizer_, *policy);
    }
    int64_t document = 0;
    for (const StoreShard& shard : info.shards) {
      first_document_.push_back(document);
      document += shard.documents;
    }
    first_document_.push_back(document);
  }

  SplitReport run() {
    find_border();
    NewDirectory train(options_.out_train, "store.json", options_.force);
    NewDirectory validation(options_.out_validation, "store.json", options_.force);
    std::vector<Sides<ShardSide>> sides(store_.info().shards.size());
    for_each_shard([&](size_t shard) {
      sides[shard] = split_shard(shard, train.path(), validation.path());
    });
    SplitReport report = describe(sides);
    finish(report.validation, validation.path());
    finish(report.train, train.path());
    validation.commit();
    train.commit();
    return report;
  }

 private:
  Document read(int64_t document) const {
    const int64_t begin = document == 0 ? 0 : store_.document_end(document - 1);
    const int64_t end = store_.document_end(document);
    if (begin >= end) {
      fail_input(
          "data",
          "{}: document {} ends before it begins; 'longhaul verify' finds the file",
          store_.path().string(), document);
    }
    Document result;
    const auto count = static_cast<size_t>(end - begin);
    std::vector<int32_t> ids(count);
    store_.read(begin, ids);
    result.tokens.assign(ids.begin(), ids.end());
    if (!store_.all_targets()) {
      result.is_target.resize(count);
      store_.read_targets(begin, result.is_target);
    }
    result.text_bytes = store_.text_bytes(document);
    result.origin = store_.origin_of(document);
    return result;
  }

  uint64_t hash(const Document& document) const {
    return XXH3_64bits_withSeed(document.tokens.data(),
                                document.tokens.size() * sizeof(tokenizer::TokenId),
                                options_.seed);
  }

  /// Sets border_. Documents whose hash is at most border_ go to validation.
  void find_border() {
    if (options_.documents == 0) {
      const double border = std::ldexp(options_.share, 64);
      if (border < 1.0) fail_empty();
      border_ = static_cast<uint64_t>(border) - 1;
      return;
    }
    std::mutex mutex;
    std::priority_queue<uint64_t> lowest;
    const auto most = static_cast<size_t>(options_.documents);
    for_each_shard([&](size_t shard) {
      for (int64_t d = first_document_[shard]; d < first_document_[shard + 1]; ++d) {
        const uint64_t value = hash(read(d));
        const std::lock_guard lock(mutex);
        lowest.push(value);
        if (lowest.size() > most) lowest.pop();
      }
    });
    if (lowest.size() < most) fail_empty();
    border_ = lowest.top();
  }

  [[noreturn]] void fail_empty() const {
    fail_input("data",
               "{}: {} documents do not split into two sides this way; choose another "
               "--share or --documents",
               store_.path().string(), grouped(store_.info().documents));
  }

  int64_t special_inside(const Document& document) const {
    // The template of a chat writes such tokens itself.
    if (!tokenizer_ || document.text_bytes == 0 || store_.info().chat) return 0;
    int64_t count = 0;
    for (size_t i = special_.before.size();
         i + special_.after.size() < document.tokens.size(); ++i) {
      const tokenizer::TokenId id = document.tokens[i];
      if (id == tokenizer_->bos_id() || id == tokenizer_->eos_id()) ++count;
    }
    return count;
  }

  Sides<ShardSide> split_shard(size_t shard, const fs::path& train_dir,
                               const fs::path& validation_dir) {
    const int token_bytes = store_.info().token_bytes;
    const auto number = static_cast<int>(shard);
    Sides<ShardWriter> writers{{train_dir, number, token_bytes},
                               {validation_dir, number, token_bytes}};
    Sides<ShardPiece> pieces{ShardPiece(token_bytes), ShardPiece(token_bytes)};
    size_t held = 0;
    const auto flush = [&] {
      writers.train.append(std::exchange(pieces.train, ShardPiece(token_bytes)));
      writers.validation.append(
          std::exchange(pieces.validation, ShardPiece(token_bytes)));
      held = 0;
    };
    for (int64_t d = first_document_[shard]; d < first_document_[shard + 1]; ++d) {
      const Document document = read(d);
      ShardPiece& side = hash(document) <= border_ ? pieces.validation : pieces.train;
      side.add(document.tokens, document.is_target, document.text_bytes, document.origin);
      side.counts().special_in_text += special_inside(document);
      held += document.tokens.size();
      if (held >= kPieceTokens) flush();
    }
    flush();
    Sides<ShardSide> sides{writers.train.finish(), writers.validation.finish()};
    const std::lock_guard lock(mutex_);
    done_ += first_document_[shard + 1] - first_document_[shard];
    if (options_.progress) options_.progress(done_, store_.info().documents);
    return sides;
  }

  void for_each_shard(const std::function<void(size_t)>& work) {
    const int threads = system::threads_of(options_.threads);
    system::share_among_threads(static_cast<int64_t>(store_.info().shards.size()),
                                threads,
                                [&](int64_t shard) { work(static_cast<size_t>(shard)); });
  }

  SplitReport describe(const std::vector<Sides<ShardSide>>& sides) const {
    SplitReport report;
    report.train = store_.info();
    report.train.shards.clear();
    report.train.counts = {};
    // The findings are those of both sides together.
    if (report.train.chat) report.train.chat->findings.clear();
    report.validation = report.train;
    for (const auto& [train, validation] : sides) {
      train.add_to(report.train);
      validation.add_to(report.validation);
    }
    if (report.train.shards.empty() || report.validation.shards.empty()) fail_empty();
    const std::string rule = options_.documents > 0
                                 ? fmt::format("{} documents", options_.documents)
                                 : fmt::format("{}%", options_.share * 100);
    const std::string chosen = fmt::format("{} of {}, chosen with seed {}", rule,
                                           store_.info().fingerprint, options_.seed);
    report.validation.selection = chosen;
    report.train.selection = "all but " + chosen;
    report.validation.build = hash_hex(chosen);
    report.train.build = hash_hex(report.train.selection);
    return report;
  }

  void finish(StoreInfo& info, const fs::path& dir) const {
    sum_up_shards(info);
    const fs::path& from = store_.path();
    if (!info.tokenizer_files.empty()) {
      fs::create_directories(dir / "tokenizer");
      for (const StoreFile& file : info.tokenizer_files) {
        const fs::path to = dir / "tokenizer" / file.name;
        fs::create_directories(to.parent_path());
        copy_file_durable(from / "tokenizer" / file.name, to);
        sync_directory(to.parent_path());
      }
      sync_directory(dir / "tokenizer");
    }
    for (const auto& file : {info.self_test, info.bad_records}) {
      if (file) copy_file_durable(from / file->name, dir / file->name);
    }
    write_text_atomic(dir / "store.json", store_info_text(info));
  }

  TokenStore store_;
  const SplitOptions& options_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  SpecialTokens special_;
  std::vector<int64_t> first_document_;
  uint64_t border_ = 0;
  std::mutex mutex_;
  int64_t done_ = 0;
};

}  // namespace

SplitReport split_store(const fs::path& store, const SplitOptions& options) {
  LH_CHECK((options.documents > 0) != (options.share > 0.0) && options.share < 1.0,
           "data", "a split of {} documents and a share of {}", options.documents,
           options.share);
  return Splitter(store, options).run();
}

}  // namespace longhaul::data
