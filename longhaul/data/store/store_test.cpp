#include "longhaul/data/store/store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <set>
#include <thread>

#include "longhaul/base/hash.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/store/inspect_store.h"
#include "longhaul/data/store/store_source.h"
#include "longhaul/data/store/token_store.h"
#include "tests/support/store_build.h"

namespace longhaul::data {
namespace {

class StoreTest : public BuildTest {};

TEST_F(StoreTest, HoldsEachDocumentBetweenItsSpecialTokens) {
  const BuildReport report = build_store(&tokenizer, options(line("ab") + line("cde")));
  EXPECT_EQ(texts(dir / "store"),
            (std::vector<std::string>{"<bos>ab<eos>", "<bos>cde<eos>"}));
  EXPECT_EQ(report.train.tokens, 9);
  EXPECT_EQ(report.train.documents, 2);
  EXPECT_EQ(report.train.counts.text_bytes, 5U);
  EXPECT_EQ(report.train.counts.max_token_id, 257);
  EXPECT_EQ(report.train.token_bytes, 2);
  EXPECT_DOUBLE_EQ(bytes_per_token(dir / "store"), 5.0 / 9.0);
  EXPECT_EQ(bytes_per_token(dir / "nothing"), 0.0);
  EXPECT_TRUE(fs::exists(dir / "store" / "tokenizer" / "tokenizer.json"));
}

TEST_F(StoreTest, PutsSpecialTokensByPolicyAndNeverTwice) {
  const auto first = [&](const tokenizer::Tokenizer& with, SpecialPolicy policy) {
    BuildOptions wanted = options(line("a"));
    wanted.special = policy;
    wanted.force = true;
    build_store(&with, wanted);
    return texts(dir / "store").at(0);
  };
  const ByteTokenizer with_eos(dir / "tokenizer.json", false, true);
  EXPECT_EQ(first(tokenizer, SpecialPolicy::TokenizerAndEos), "<bos>a<eos>");
  EXPECT_EQ(first(with_eos, SpecialPolicy::TokenizerAndEos), "a<eos>");
  EXPECT_EQ(first(tokenizer, SpecialPolicy::Tokenizer), "<bos>a");
  EXPECT_EQ(first(tokenizer, SpecialPolicy::Bos), "<bos>a");
  EXPECT_EQ(first(tokenizer, SpecialPolicy::Eos), "a<eos>");
  EXPECT_EQ(first(with_eos, SpecialPolicy::Both), "<bos>a<eos>");
  EXPECT_EQ(first(tokenizer, SpecialPolicy::None), "a");
  for (const auto policy : {SpecialPolicy::TokenizerAndEos, SpecialPolicy::None}) {
    EXPECT_EQ(policy_from_name(policy_name(policy)), policy);
  }
}

TEST_F(StoreTest, CountsSpecialTokensThatStandInTexts) {
  const BuildReport report =
      build_store(&tokenizer, options(line("a<eos>b<eos>") + line("c")));
  EXPECT_EQ(report.train.counts.special_in_text, 2);
}

TEST_F(StoreTest, CutsSequencesAndDropsOnlyTheLastPartialWindow) {
  BuildOptions wanted = options(line("abcd") + line("efgh") + line("ij"));
  wanted.special = SpecialPolicy::None;
  wanted.part_bytes = 1;  // sequences cross the borders of shards
  EXPECT_EQ(build_store(&tokenizer, wanted).train.shards.size(), 3U);
  const auto source = open_source(dir / "store", 3);
  EXPECT_EQ(source->num_sequences(), 3);  // 10 tokens: 3 x 3 tokens and a last target
  EXPECT_EQ(open_source(dir / "store", 9)->num_sequences(), 1);
  TokenBatch batch;
  batch.resize(3, 3);
  for (int64_t i = 0; i < 3; ++i) source->read(i, batch, i);
  EXPECT_EQ(batch.tokens,
            (std::vector<int32_t>{'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'}));
  EXPECT_EQ(batch.targets[0],
            (std::vector<int32_t>{'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j'}));
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(batch.document_start, std::vector<int32_t>(9, 0));
  EXPECT_EQ(batch.num_targets(0), 9);
  EXPECT_HAS(input_error([&] { open_source(dir / "store", 10); }),
             "smaller data.seq_len");
}

TEST_F(StoreTest, RefusesAFieldSinceItHasNone) {
  build_store(&tokenizer, options(line("abcdefgh")));
  EXPECT_HAS(
      input_error([&] { open_source(dir / "store", 3, false, true, "tokens"); }),
      "field = \"tokens\" names a field of records, but a token store has no fields");
}

TEST_F(StoreTest, OfReadyIdsRefusesSpecialTokensThatWereAskedFor) {
  BuildOptions wanted = options("{\"text\":[97,98]}\n");
  EXPECT_EQ(build_store(&tokenizer, wanted).train.tokens, 2);
  wanted.force = true;
  wanted.special_asked = true;
  wanted.special = SpecialPolicy::Eos;
  EXPECT_HAS(input_error([&] { build_store(&tokenizer, wanted); }),
             "--special-tokens eos: 'text' holds ready ids");
  wanted.vocab_size = 256;
  EXPECT_HAS(input_error([&] { build_store(nullptr, wanted); }),
             "--special-tokens eos with --vocab-size");
  wanted.special = SpecialPolicy::None;  // ready ids have no special tokens
  EXPECT_EQ(build_store(&tokenizer, wanted).train.tokens, 2);
}

TEST_F(StoreTest, MarksDocumentsInsideARow) {
  BuildOptions wanted = options(line("abc") + line("d") + line("efghi") + line("jk"));
  wanted.special = SpecialPolicy::None;
  build_store(&tokenizer, wanted);
  const auto source = open_source(dir / "store", 5, true);
  TokenBatch batch;
  batch.resize(2, 5);
  source->read(0, batch, 0);  // a b c | d | e
  source->read(1, batch, 1);  // f g h i | j
  EXPECT_EQ(batch.document_start, (std::vector<int32_t>{0, 0, 0, 3, 4, 0, 0, 0, 0, 4}));
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 1, 2, 0, 0, 0, 1, 2, 3, 0}));
  EXPECT_EQ(batch.targets[0][2], 'd');
}

TEST_F(StoreTest, TokensHaveAsManyBytesAsTheVocabularyNeeds) {
  for (const auto& [vocabulary, bytes] : std::vector<std::pair<int64_t, int>>{
           {65536, 2}, {65537, 3}, {128256, 3}, {1 << 24, 3}, {(1 << 24) + 1, 4}}) {
    BuildOptions wanted = options("{\"text\": [0, 255, 256, " +
                                  std::to_string(vocabulary - 1) + ", 65535, 1]}\n");
    wanted.vocab_size = vocabulary;
    wanted.force = true;
    const BuildReport report = build_store(nullptr, wanted);
    EXPECT_EQ(report.train.token_bytes, bytes) << vocabulary;
    EXPECT_EQ(fs::file_size(dir / "store" / "tokens_00000.bin"),
              static_cast<uint64_t>(6 * bytes));
    const TokenStore store(dir / "store");
    std::vector<int32_t> ids(6);
    store.read(0, ids);
    EXPECT_EQ(ids, (std::vector<int32_t>{
                       0, 255, 256, static_cast<int32_t>(vocabulary - 1), 65535, 1}));
    std::vector<int32_t> some(2);
    store.read(3, some);
    EXPECT_EQ(some, (std::vector<int32_t>{static_cast<int32_t>(vocabulary - 1), 65535}));
  }
  const ByteTokenizer wide(dir / "tokenizer.json", true, false, 128256);
  BuildOptions wanted = options(line("abc"));
  wanted.force = true;
  EXPECT_EQ(build_store(&wide, wanted).train.token_bytes, 3);
  EXPECT_EQ(texts(dir / "store"), (std::vector<std::string>{"<bos>abc<eos>"}));
}

TEST_F(StoreTest, HoldsOutWholeDocumentsAndKeepsEqualTextsOnOneSide) {
  const std::string corpus = many_documents(5000);
  BuildOptions wanted = options(corpus + corpus);
  wanted.holdout = 0.1;
  const BuildReport report = build_store(&tokenizer, wanted);
  const auto train = texts(dir / "store");
  const auto held = texts(*report.validation_path);
  EXPECT_EQ(*report.validation_path, dir / "store-val");
  EXPECT_EQ(train.size() + held.size(), 10000U);
  EXPECT_NEAR(static_cast<double>(held.size()), 1000, 130);
  const std::set<std::string> left(train.begin(), train.end());
  for (const std::string& text : held) EXPECT_EQ(left.count(text), 0U) << text;
  // The text alone decides its side of the holdout. Other texts in the corpus change
  // nothing.
  BuildOptions fewer = options(many_documents(2500), "fewer");
  fewer.holdout = 0.1;
  build_store(&tokenizer, fewer);
  const std::set<std::string> all(held.begin(), held.end());
  for (const std::string& text : texts(dir / "fewer-val")) EXPECT_EQ(all.count(text), 1U);
}

TEST_F(StoreTest, LeavesNothingBehindWhenTheCorpusIsEmptyOrBad) {
  const std::string before = (options(""), dir.listing());
  EXPECT_HAS(input_error([&] { build_store(&tokenizer, options("")); }),
             "1 file holds no document with text");
  EXPECT_HAS(
      input_error([&] { build_store(&tokenizer, options("\n{\"text\":\"\"}\n")); }),
      "2 empty");
  EXPECT_HAS(input_error([&] {
               build_store(&tokenizer, options(line("good") + "{\"text\":\"\xFF\"}"));
             }),
             "corpus.jsonl:2: invalid UTF-8");
  BuildOptions wanted = options(line("only"));
  wanted.holdout = 0.5;
  EXPECT_HAS(input_error([&] { build_store(&tokenizer, wanted); }),
             "one side empty: all of 1 document was held out");
  EXPECT_EQ(dir.listing(), before);
}

TEST_F(StoreTest, CountsDroppedRecordsInTheStore) {
  BuildOptions wanted = options(line("good") + "{\"text\":\"\xFF\"}\n{\n");
  wanted.bad_records = BadRecords::Drop;
  const BuildReport report = build_store(&tokenizer, wanted);
  EXPECT_EQ(report.train.dropped.at("invalid UTF-8"), 1);
  EXPECT_EQ(report.train.dropped.at("invalid JSON"), 1);
}

TEST_F(StoreTest, NeverReplacesWhatItWasNotToldToReplace) {
  build_store(&tokenizer, options(line("first")));
  EXPECT_HAS(input_error([&] { build_store(&tokenizer, options(line("second"))); }),
             "--force");
  EXPECT_EQ(texts(dir / "store").at(0), "<bos>first<eos>");
  BuildOptions wanted = options(line("second"));
  wanted.force = true;
  build_store(&tokenizer, wanted);
  EXPECT_EQ(texts(dir / "store").at(0), "<bos>second<eos>");
  fs::create_directories(dir / "mine");
  BuildOptions mine = options(line("third"), "mine");
  mine.force = true;
  EXPECT_HAS(input_error([&] { build_store(&tokenizer, mine); }), "is not a token store");
}

TEST_F(StoreTest, FindsTokensPastTheVocabularyAndForeignTokenizersAtOpen) {
  build_store(&tokenizer, options(line("abc")));
  const auto source = open_source(dir / "store", 2);
  EXPECT_EQ(source->max_token_id(), 258);
  check_tokenizer(*source, "bytes");
  check_tokenizer(*source, "");
  const std::string message = input_error([&] { check_tokenizer(*source, "other"); });
  EXPECT_HAS(message, "made with another tokenizer (fingerprint bytes)");
  EXPECT_HAS(message, "(other)");
}

TEST_F(StoreTest, RefusesDamagedStores) {
  build_store(&tokenizer, options(many_documents(100)));
  const fs::path store = dir / "store";
  const std::string good = read_text(store / "store.json");
  const auto with = [&](const std::function<void(Json&)>& change) {
    Json json = Json::parse(good);
    change(json);
    write_text_atomic(store / "store.json", json.dump());
    const std::string message = input_error([&] { open_source(store, 8); });
    write_text_atomic(store / "store.json", good);
    return message;
  };
  EXPECT_HAS(with([](Json& json) { json["version"] = 9; }), "format version 9");
  EXPECT_HAS(with([](Json& json) { json["token_bytes"] = 1; }), "tokens of 1 bytes");
  EXPECT_HAS(with([](Json& json) { json["token_bytes"] = 3; }), "tokens_00000.bin has");
  EXPECT_HAS(with([](Json& json) { json["tokens"] = -1; }), "'tokens' is -1");
  EXPECT_HAS(with([](Json& json) { json["tokens"] = uint64_t{1} << 63; }), "'tokens'");
  EXPECT_HAS(with([](Json& json) { json["documents"] = 7; }), "100 documents");
  EXPECT_HAS(with([](Json& json) { json.erase("shards"); }), "'shards' is missing");
  EXPECT_HAS(with([](Json& json) {
               json["shards"][0]["token_file"]["name"] = "../corpus.jsonl";
             }),
             "leaves its directory");
  EXPECT_HAS(with([](Json& json) { json["counts"]["max_token_id"] = 400; }),
             "vocabulary of 258");
  EXPECT_HAS(with([](Json& json) { json["shards"][0]["tokens"] = 7; }),
             "tokens_00000.bin");
  EXPECT_HAS(with([](Json& json) { json["shards"][0]["not_targets"] = 1; }),
             "are no targets, but the file of targets is not");
  EXPECT_HAS(with([](Json& json) { json["shards"] = Json::array(); }), "no shards");
  EXPECT_HAS(with([](Json& json) { json["fingerprint"] = "x"; }), "fingerprint");
  write_text_atomic(store / "store.json", good.substr(0, good.size() / 2));
  EXPECT_HAS(input_error([&] { open_source(store, 8); }), "not valid JSON");
  write_text_atomic(store / "store.json", good);

  // The store refuses to return an id above the largest id.
  const Json json = Json::parse(good);
  write_text_atomic(store / "store.json", [&] {
    Json low = json;
    low["counts"]["max_token_id"] = 'd';
    return low.dump();
  }());
  const auto source = open_source(store, 8);
  TokenBatch batch;
  batch.resize(1, 8);
  EXPECT_HAS(input_error([&] { source->read(0, batch, 0); }), "the store is damaged");
  write_text_atomic(store / "store.json", good);

  fs::resize_file(store / "tokens_00000.bin", 100);
  EXPECT_HAS(input_error([&] { open_source(store, 8); }),
             "100 bytes, but store.json says");
  fs::remove(store / "tokens_00000.bin");
  EXPECT_HAS(input_error([&] { open_source(store, 8); }), "missing");
}

TEST_F(StoreTest, VerifyNamesTheDamagedFileAndBlock) {
  std::string corpus = line(std::string(3 << 19, 'z'));
  build_store(&tokenizer, options(corpus));
  const fs::path shard = dir / "store" / "tokens_00000.bin";
  EXPECT_GT(verify_store(dir / "store"), fs::file_size(shard));
  std::string bytes = read_text(shard);
  bytes[(2 << 20) + 5] = 1;
  write_text_atomic(shard, bytes);
  const std::string message = input_error([&] { verify_store(dir / "store"); });
  EXPECT_HAS(message, "tokens_00000.bin: damaged in bytes 2097152 to 3145728");
}

/// Changes bytes of a file in place, so that a mapping of the file changes too.
void overwrite(const fs::path& file, uint64_t offset, std::string_view bytes) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(offset));
  stream << bytes;
}

TEST_F(StoreTest, ReadingTellsChangedBytesWhenTheirBlockIsFirstTouched) {
  build_store(&tokenizer, options(line(std::string(3 << 19, 'z'))));
  const fs::path shard = dir / "store" / "tokens_00000.bin";
  const std::string block(read_text(shard).substr(2 << 20, 1 << 20));
  const std::string_view changed("a\0b", 3);  // ids below the largest id
  overwrite(shard, (2 << 20) + 512, changed);
  std::string damaged = block;
  damaged.replace(512, 3, changed);
  const auto source = open_source(dir / "store", 1 << 18);  // two sequences a block
  TokenBatch batch;
  batch.resize(1, 1 << 18);
  for (const int64_t index : {0, 1, 2}) source->read(index, batch, 0);
  for (int round = 0; round < 2; ++round) {
    EXPECT_HAS(input_error([&] { source->read(4, batch, 0); }),
               shard.string() +
                   ": damaged: block 2 (bytes 2097152 to 3145728) has hash " +
                   hash_hex(damaged) + ", hashes_00000.json says " + hash_hex(block) +
                   "; copy the store again or build it again");
  }
  // The last target of sequence 3 is the first token of sequence 4, which lies in block
  // 2.
  EXPECT_HAS(input_error([&] { source->read(3, batch, 0); }), "block 2");
  EXPECT_NO_THROW(open_source(dir / "store", 1 << 18, false, false)->read(4, batch, 0));
}

TEST_F(StoreTest, ABlockIsComparedOnceAndNotAtEachReading) {
  build_store(&tokenizer, options(line(std::string(100, 'z'))));
  const TokenStore store(dir / "store");
  std::vector<int32_t> ids(4);
  store.read(1, ids);
  EXPECT_EQ(ids, std::vector<int32_t>(4, 'z'));
  overwrite(dir / "store" / "tokens_00000.bin", 4, "a");
  store.read(1, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{'z', 'a', 'z', 'z'}));
}

TEST_F(StoreTest, ThreadsThatTouchABlockTogetherReadTheSame) {
  build_store(&tokenizer, options(many_documents(20000)));
  const TokenStore one(dir / "store", false);
  std::vector<int32_t> expected(static_cast<size_t>(one.info().tokens));
  one.read(0, expected);
  ASSERT_GT(expected.size() * 2, 3 * kHashBlockBytes);
  const TokenStore store(dir / "store");
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<int32_t> ids(1000);
      for (size_t at = 100 * t; at + ids.size() <= expected.size(); at += 997) {
        store.read(static_cast<int64_t>(at), ids);
        wrong += std::equal(ids.begin(), ids.end(), expected.begin() + at) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(StoreTest, TheOtherFilesOfAShardAreComparedToo) {
  BuildOptions wanted =
      options("{\"ids\":[1,2,3],\"attention_mask\":[1,0,1]}\n{\"ids\":[4,5,6,7,8,9]}\n");
  wanted.inputs.field = "ids";
  build_store(&tokenizer, wanted);
  const fs::path store = dir / "store";
  std::vector<uint8_t> targets(2);
  const auto damaged = [&](const char* name, auto read) {
    const std::string good = read_text(store / name);
    write_text_atomic(store / name, [&] {
      std::string bytes = good;
      bytes[0] = static_cast<char>(bytes[0] ^ 1);
      return bytes;
    }());
    const TokenStore opened(store);
    EXPECT_HAS(input_error([&] { read(opened); }), std::string(name) + ": damaged");
    write_text_atomic(store / name, good);
  };
  damaged("documents_00000.bin", [](const TokenStore& s) { s.document_of(4); });
  damaged("documents_00000.bin", [](const TokenStore& s) { s.document_end(0); });
  damaged("targets_00000.bin", [&](const TokenStore& s) { s.read_targets(3, targets); });
  damaged("hashes_00000.json", [](const TokenStore& s) { s.document_end(0); });
  BuildOptions text = options(line("a"));
  text.force = true;
  build_store(&tokenizer, text);
  damaged("texts_00000.bin", [](const TokenStore& s) { s.text_bytes(0); });
}

TEST_F(StoreTest, VerifyNamesAnyFileInWhichABitIsFlippedOrMissing) {
  BuildOptions wanted =
      options("{\"ids\":[1,2,3],\"attention_mask\":[1,0,1]}\n{\"ids\":\"text\"}\n{\n");
  wanted.inputs.field = "ids";
  wanted.bad_records = BadRecords::Drop;
  build_store(&tokenizer, wanted);
  const fs::path store = dir / "store";
  std::set<std::string> kinds;
  for (const auto& [name, bytes] : contents(store)) {
    kinds.insert(name);
    const bool is_info = name == "store.json";
    for (const size_t at : {size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ 4);
      write_text_atomic(store / name, flipped);
      // A flipped bit in the descriptions of store.json is not found, but a flipped bit
      // in its structure is found.
      if (!is_info || at == 0) {
        EXPECT_HAS(input_error([&] { verify_store(store); }), fs::path(name).filename());
      }
    }
    write_text_atomic(store / name, bytes.substr(0, bytes.size() - 1));
    if (!is_info) {
      EXPECT_HAS(input_error([&] { open_source(store, 2); }), fs::path(name).filename());
    }
    fs::remove(store / name);
    if (!is_info) {
      EXPECT_HAS(input_error([&] { open_source(store, 2); }), "missing");
    }
    write_text_atomic(store / name, bytes);
  }
  EXPECT_EQ(kinds,
            (std::set<std::string>{
                "bad_records.jsonl", "documents_00000.bin", "hashes_00000.json",
                "records_00000.bin", "self_test.json", "store.json", "targets_00000.bin",
                "texts_00000.bin", "tokenizer/tokenizer.json", "tokens_00000.bin"}));
}

TEST_F(StoreTest, TokensThatAreNoTargetsAreIgnoredWhereTheyWouldBePredicted) {
  BuildOptions wanted = options(
      "{\"ids\":[1,2,3],\"attention_mask\":[1,0,1]}\n{\"ids\":[4,5]}\n"
      "{\"ids\":[6,7,8],\"labels\":[-100,7,-100]}\n");
  wanted.inputs.field = "ids";
  wanted.part_bytes = 1;
  EXPECT_EQ(build_store(&tokenizer, wanted).train.counts.not_targets, 3);
  const auto source = open_source(dir / "store", 7);
  TokenBatch batch;
  batch.resize(1, 7);
  source->read(0, batch, 0);
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(batch.targets[0],
            (std::vector<int32_t>{kIgnore, 3, 4, 5, kIgnore, 7, kIgnore}));
}

TEST_F(StoreTest, SaysWhatItFoundWhenAPathIsNoSource) {
  EXPECT_HAS(input_error([&] { open_source(dir / "nothing", 8); }), "no such file");
  EXPECT_HAS(input_error([&] { open_source(dir.write("a.txt", "x"), 8); }),
             "longhaul data build");
  fs::create_directories(dir / "dict");
  dir.write("dict/dataset_dict.json", "{}");
  EXPECT_HAS(input_error([&] { open_source(dir / "dict", 8); }), "DatasetDict");
  fs::create_directories(dir / "saved");
  dir.write("saved/dataset_info.json", "{}");
  dir.write("saved/state.json", "{\"_data_files\":[{\"filename\":\"data.arrow\"}]}");
  EXPECT_HAS(input_error([&] { open_source(dir / "saved", 8); }), "state.json names it");
  dir.write("saved/data.arrow", "rubbish that is no Arrow stream");
  EXPECT_HAS(input_error([&] { open_source(dir / "saved", 8); }), "Arrow");
  dir.write("saved/state.json", "{\"_data_files\":[{\"filename\":\"../x\"}]}");
  EXPECT_HAS(input_error([&] { open_source(dir / "saved", 8); }), "leaves its directory");
}

}  // namespace
}  // namespace longhaul::data
