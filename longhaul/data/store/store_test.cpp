#include "longhaul/data/store/store.h"

#include <gtest/gtest.h>

#include <set>

#include "longhaul/base/json.h"
#include "longhaul/data/sources/open_source.h"
#include "longhaul/data/store/build_store.h"
#include "longhaul/data/store/store_source.h"
#include "longhaul/data/test_files.h"
#include "longhaul/data/test_tokenizer.h"

namespace longhaul::data {
namespace {

std::string line(const std::string& text) { return Json{{"text", text}}.dump() + "\n"; }

/// A corpus in a directory, and how it is built.
class StoreTest : public ::testing::Test {
 protected:
  StoreTest() : tokenizer(dir.write("tokenizer.json", "{}"), true, false) {}

  BuildOptions options(const std::string& corpus, const std::string& out = "store") {
    BuildOptions result;
    result.files = {dir.write("corpus.jsonl", corpus)};
    result.out = dir / out;
    result.threads = 2;
    return result;
  }
  std::string many_documents(int count) {
    std::string corpus;
    for (int i = 0; i < count; ++i) {
      corpus += line("document " + std::to_string(i) +
                     std::string(static_cast<size_t>(i % 300), 'x'));
    }
    return corpus;
  }
  /// The texts of a store's documents, special tokens spelled out.
  std::vector<std::string> texts(const fs::path& path) {
    const TokenStore store(path);
    std::vector<std::string> result;
    int64_t begin = 0;
    for (int64_t d = 0; d < store.info().documents; ++d) {
      const int64_t end = store.document_end(d);
      std::vector<int32_t> tokens(static_cast<size_t>(end - begin));
      store.read(begin, tokens);
      result.push_back(tokenizer.decode({tokens.begin(), tokens.end()}, false));
      begin = end;
    }
    return result;
  }

  TestDirectory dir;
  ByteTokenizer tokenizer;
};

TEST_F(StoreTest, HoldsEachDocumentBetweenItsSpecialTokens) {
  const BuildReport report = build_store(tokenizer, options(line("ab") + line("cde")));
  EXPECT_EQ(texts(dir / "store"),
            (std::vector<std::string>{"<bos>ab<eos>", "<bos>cde<eos>"}));
  EXPECT_EQ(report.train.tokens, 9);
  EXPECT_EQ(report.train.documents, 2);
  EXPECT_EQ(report.train.text_bytes, 5U);
  EXPECT_EQ(report.train.max_token_id, 257);
  EXPECT_EQ(report.train.dtype, DType::U16);
  EXPECT_DOUBLE_EQ(bytes_per_token(dir / "store"), 5.0 / 9.0);
  EXPECT_EQ(bytes_per_token(dir / "nothing"), 0.0);
  EXPECT_TRUE(fs::exists(dir / "store" / "tokenizer" / "tokenizer.json"));
}

TEST_F(StoreTest, PutsSpecialTokensByPolicyAndNeverTwice) {
  const auto first = [&](const Tokenizer& with, SpecialPolicy policy) {
    BuildOptions wanted = options(line("a"));
    wanted.special = policy;
    wanted.force = true;
    build_store(with, wanted);
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
      build_store(tokenizer, options(line("a<eos>b<eos>") + line("c")));
  EXPECT_EQ(report.train.special_tokens_in_text, 2);
}

TEST_F(StoreTest, CutsSequencesAndDropsOnlyTheLastPartialWindow) {
  BuildOptions wanted = options(line("abcdefghij"));
  wanted.special = SpecialPolicy::None;
  wanted.tokens_per_shard = 4;  // sequences cross the shards' edges
  build_store(tokenizer, wanted);
  const auto source = open_source(dir / "store", 3);
  EXPECT_EQ(source->num_sequences(), 3);  // 10 tokens: 3 x 3 and a last target
  EXPECT_EQ(open_source(dir / "store", 9)->num_sequences(), 1);
  TokenBatch batch;
  batch.resize(3, 3);
  for (int64_t i = 0; i < 3; ++i) source->read(i, batch, i);
  EXPECT_EQ(batch.tokens,
            (std::vector<int32_t>{'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'}));
  EXPECT_EQ(batch.targets,
            (std::vector<int32_t>{'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j'}));
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(batch.document_start, std::vector<int32_t>(9, 0));
  EXPECT_EQ(batch.num_targets(), 9);
  EXPECT_HAS(input_error([&] { open_source(dir / "store", 10); }),
             "smaller data.seq_len");
}

TEST_F(StoreTest, MarksDocumentsInsideARow) {
  BuildOptions wanted = options(line("abc") + line("d") + line("efghi") + line("jk"));
  wanted.special = SpecialPolicy::None;
  build_store(tokenizer, wanted);
  const auto source = open_source(dir / "store", 5, true);
  TokenBatch batch;
  batch.resize(2, 5);
  source->read(0, batch, 0);  // a b c | d | e
  source->read(1, batch, 1);  // f g h i | j
  EXPECT_EQ(batch.document_start, (std::vector<int32_t>{0, 0, 0, 3, 4, 0, 0, 0, 0, 4}));
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 1, 2, 0, 0, 0, 1, 2, 3, 0}));
  EXPECT_EQ(batch.targets[2], 'd');
}

TEST_F(StoreTest, UsesWideTokensForALargeVocabulary) {
  const ByteTokenizer wide(dir / "tokenizer.json", true, false, 128256);
  const BuildReport report = build_store(wide, options(line("abc")));
  EXPECT_EQ(report.train.dtype, DType::U32);
  EXPECT_EQ(texts(dir / "store"), (std::vector<std::string>{"<bos>abc<eos>"}));
}

TEST_F(StoreTest, DoesNotDependOnTheNumberOfThreads) {
  std::string one;
  const std::string corpus = many_documents(20000);
  for (const int threads : {1, 2, 7}) {
    BuildOptions wanted = options(corpus);
    wanted.threads = threads;
    wanted.holdout = 0.1;
    wanted.force = true;
    const BuildReport report = build_store(tokenizer, wanted);
    const std::string both = read_text(dir / "store" / "store.json") +
                             read_text(dir / "store-val" / "store.json");
    if (one.empty()) one = both;
    EXPECT_EQ(both, one) << threads;
    EXPECT_EQ(report.train.documents + report.validation->documents, 20000);
  }
}

TEST_F(StoreTest, HoldsOutWholeDocumentsAndKeepsEqualTextsOnOneSide) {
  const std::string corpus = many_documents(5000);
  BuildOptions wanted = options(corpus + corpus);
  wanted.holdout = 0.1;
  const BuildReport report = build_store(tokenizer, wanted);
  const auto train = texts(dir / "store");
  const auto held = texts(*report.validation_path);
  EXPECT_EQ(*report.validation_path, dir / "store-val");
  EXPECT_EQ(train.size() + held.size(), 10000U);
  EXPECT_NEAR(static_cast<double>(held.size()), 1000, 130);
  const std::set<std::string> left(train.begin(), train.end());
  for (const std::string& text : held) EXPECT_EQ(left.count(text), 0U) << text;
  // The choice is a text's own: it stays when the corpus around it changes.
  BuildOptions fewer = options(many_documents(2500), "fewer");
  fewer.holdout = 0.1;
  build_store(tokenizer, fewer);
  const std::set<std::string> all(held.begin(), held.end());
  for (const std::string& text : texts(dir / "fewer-val")) EXPECT_EQ(all.count(text), 1U);
}

TEST_F(StoreTest, LeavesNothingBehindWhenTheCorpusIsEmptyOrBad) {
  const std::string before = (options(""), dir.listing());
  EXPECT_HAS(input_error([&] { build_store(tokenizer, options("")); }),
             "hold no document with text");
  EXPECT_HAS(input_error([&] { build_store(tokenizer, options("\n{\"text\":\"\"}\n")); }),
             "2 empty");
  EXPECT_HAS(input_error([&] {
               build_store(tokenizer, options(line("good") + "{\"text\":\"\xFF\"}"));
             }),
             "corpus.jsonl:2: invalid UTF-8");
  BuildOptions wanted = options(line("only"));
  wanted.holdout = 0.5;
  EXPECT_HAS(input_error([&] { build_store(tokenizer, wanted); }), "one side empty");
  EXPECT_EQ(dir.listing(), before);
}

TEST_F(StoreTest, CountsDroppedRecordsInTheStore) {
  BuildOptions wanted = options(line("good") + "{\"text\":\"\xFF\"}\n{\n");
  wanted.bad_records = BadRecords::Drop;
  const BuildReport report = build_store(tokenizer, wanted);
  EXPECT_EQ(report.train.dropped.at("invalid UTF-8"), 1);
  EXPECT_EQ(report.train.dropped.at("invalid JSON"), 1);
}

TEST_F(StoreTest, NeverReplacesWhatItWasNotToldToReplace) {
  build_store(tokenizer, options(line("first")));
  EXPECT_HAS(input_error([&] { build_store(tokenizer, options(line("second"))); }),
             "--force");
  EXPECT_EQ(texts(dir / "store").at(0), "<bos>first<eos>");
  BuildOptions wanted = options(line("second"));
  wanted.force = true;
  build_store(tokenizer, wanted);
  EXPECT_EQ(texts(dir / "store").at(0), "<bos>second<eos>");
  fs::create_directories(dir / "mine");
  BuildOptions mine = options(line("third"), "mine");
  mine.force = true;
  EXPECT_HAS(input_error([&] { build_store(tokenizer, mine); }), "is not a token store");
}

TEST_F(StoreTest, FindsTokensPastTheVocabularyAndForeignTokenizersAtOpen) {
  build_store(tokenizer, options(line("abc")));
  const auto source = open_source(dir / "store", 2);
  check_vocabulary(*source, 258);
  EXPECT_HAS(input_error([&] { check_vocabulary(*source, 257); }),
             "holds token id 257, but the model's vocabulary has 257 ids");
  check_tokenizer(*source, "bytes");
  check_tokenizer(*source, "");
  const std::string message = input_error([&] { check_tokenizer(*source, "other"); });
  EXPECT_HAS(message, "made with another tokenizer (fingerprint bytes)");
  EXPECT_HAS(message, "(other)");
}

TEST_F(StoreTest, RefusesDamagedStores) {
  build_store(tokenizer, options(many_documents(100)));
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
  EXPECT_HAS(with([](Json& json) { json["dtype"] = "F32"; }), "dtype");
  EXPECT_HAS(with([](Json& json) { json["tokens"] = -1; }), "'tokens' is -1");
  EXPECT_HAS(with([](Json& json) { json["tokens"] = uint64_t{1} << 63; }), "'tokens'");
  EXPECT_HAS(with([](Json& json) { json["documents"] = 7; }), "document ends");
  EXPECT_HAS(with([](Json& json) { json.erase("shards"); }), "'shards' is missing");
  EXPECT_HAS(with([](Json& json) { json["shards"][0]["name"] = "../corpus.jsonl"; }),
             "leaves its directory");
  EXPECT_HAS(with([](Json& json) { json["max_token_id"] = 400; }), "vocabulary of 258");
  write_text_atomic(store / "store.json", good.substr(0, good.size() / 2));
  EXPECT_HAS(input_error([&] { open_source(store, 8); }), "not valid JSON");
  write_text_atomic(store / "store.json", good);

  // An id past the largest one is never handed out.
  const Json json = Json::parse(good);
  write_text_atomic(store / "store.json", [&] {
    Json low = json;
    low["max_token_id"] = 'd';
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
  build_store(tokenizer, options(corpus));
  const fs::path shard = dir / "store" / "tokens_00000.bin";
  EXPECT_GT(verify_store(dir / "store"), fs::file_size(shard));
  std::string bytes = read_text(shard);
  bytes[(2 << 20) + 5] = 1;
  write_text_atomic(shard, bytes);
  const std::string message = input_error([&] { verify_store(dir / "store"); });
  EXPECT_HAS(message, "tokens_00000.bin: damaged in bytes 2097152 to 3145728");
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
