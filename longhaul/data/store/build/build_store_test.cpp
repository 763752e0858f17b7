#include "longhaul/data/store/build/build_store.h"

#include <gtest/gtest.h>

#include "longhaul/data/store/self_test.h"
#include "tests/support/store_build.h"

namespace longhaul::data {
namespace {

TEST_F(BuildTest, DoesNotDependOnThreadsMemoryOrTheOrderInWhichPartsEnd) {
  BuildOptions wanted = options(many_documents(20000));
  wanted.holdout = 0.1;
  wanted.part_bytes = 300'000;
  std::map<std::string, std::string> train;
  std::map<std::string, std::string> held_out;
  for (const int threads : {1, 2, 7}) {
    wanted.threads = threads;
    wanted.memory_bytes = threads == 2 ? uint64_t{1} << 20 : 0;
    wanted.out = dir / ("store" + std::to_string(threads));
    const BuildReport report = build_store(&tokenizer, wanted);
    EXPECT_EQ(report.train.documents + report.validation->documents, 20000);
    EXPECT_GT(report.train.shards.size(), 10U);
    if (train.empty()) {
      train = contents(wanted.out);
      held_out = contents(*report.validation_path);
    }
    EXPECT_TRUE(contents(wanted.out) == train) << threads;
    EXPECT_TRUE(contents(*report.validation_path) == held_out) << threads;
    EXPECT_FALSE(fs::exists(building_path(wanted.out)));
  }
}

TEST_F(BuildTest, DocumentsAreThoseOfTheInputInItsOrderAcrossShards) {
  std::string corpus;
  std::vector<std::string> expected;
  for (int i = 0; i < 500; ++i) {
    const std::string text = "text " + std::to_string(i);
    corpus += line(text);
    expected.push_back("<bos>" + text + "<eos>");
  }
  BuildOptions wanted = options(corpus);
  wanted.part_bytes = 1000;
  const BuildReport report = build_store(&tokenizer, wanted);
  EXPECT_GT(report.train.shards.size(), 5U);
  EXPECT_EQ(texts(dir / "store"), expected);
  const TokenStore store(dir / "store");
  for (int64_t d = 0; d < 500; ++d) {
    EXPECT_EQ(store.document_of(store.document_end(d) - 1), d);
    EXPECT_EQ(store.text_bytes(d), expected[static_cast<size_t>(d)].size() - 10);
  }
  ASSERT_EQ(report.train.origins.size(), 1U);
  EXPECT_EQ(report.train.origins[0].records, 500);
  EXPECT_EQ(report.train.origins[0].bytes, corpus.size());
  const LengthHistogram& lengths = report.train.counts.lengths;
  EXPECT_EQ(lengths.shortest, 8);
  EXPECT_EQ(lengths.longest, 10);
  EXPECT_EQ(lengths.counts[3], 500);  // 8 to 15 tokens
}

TEST_F(BuildTest, EachDocumentKnowsTheFileAndTheLineThatItWasMadeFrom) {
  std::string corpus;
  for (int i = 0; i < 300; ++i) corpus += i % 3 == 1 ? "\n" : line(std::to_string(i));
  BuildOptions wanted = options(corpus);
  wanted.inputs.arguments.push_back(
      dir.write("more.jsonl", line("a") + line("b")).string());
  wanted.part_bytes = 700;  // several shards from one file
  wanted.holdout = 0.3;
  const BuildReport report = build_store(&tokenizer, wanted);
  EXPECT_GT(report.train.shards.size(), 4U);
  for (const fs::path& path : {report.train_path, *report.validation_path}) {
    const TokenStore store(path);
    const std::vector<std::string> all = texts(path);
    for (int64_t d = 0; d < store.info().documents; ++d) {
      const std::string text = all[static_cast<size_t>(d)];
      const TokenStore::Name name = store.name_of(d);
      const bool more = text == "<bos>a<eos>" || text == "<bos>b<eos>";
      EXPECT_EQ(name.file, wanted.inputs.arguments[more ? 1 : 0]);
      const int64_t at = more ? (text == "<bos>b<eos>") : std::stoll(text.substr(5));
      EXPECT_EQ(name.record, at + 1) << text;
      EXPECT_EQ(store.documents_named(name), std::vector<int64_t>{d});
    }
    EXPECT_TRUE(store.documents_named({wanted.inputs.arguments[0], 2}).empty());
  }
}

TEST_F(BuildTest, AStoreWithoutRecordsNamesDocumentsByShardAndNumber) {
  BuildOptions wanted = options(many_documents(40));
  wanted.part_bytes = 700;
  build_store(&tokenizer, wanted);
  const fs::path record = dir / "store/store.json";
  Json json = parse_json(read_text(record), "store.json");
  for (Json& shard : json["shards"]) {
    shard.erase("record_file");
    shard.erase("lines_before");
  }
  write_text_atomic(record, json.dump());
  const TokenStore store(dir / "store");
  ASSERT_GT(store.info().shards.size(), 1U);
  const int64_t in_first = store.info().shards[0].documents;
  EXPECT_FALSE(store.origin_of(in_first + 1));
  const TokenStore::Name name = store.name_of(in_first + 1);
  EXPECT_EQ(name.file, (dir / "store" / store.info().shards[1].token_file.name).string());
  EXPECT_EQ(name.record, 1);
  EXPECT_EQ(store.documents_named(name), std::vector<int64_t>{in_first + 1});
}

TEST_F(BuildTest, DropsLaterCopiesWhateverThePartsAndTheMemory) {
  std::string corpus;
  std::vector<std::string> expected;
  for (int i = 0; i < 3000; ++i) {
    const int number = i % 7 == 3 ? i / 2 : i;  // some texts come a second time
    const std::string text = "t" + std::to_string(number);
    corpus += line(text);
    if (std::find(expected.begin(), expected.end(), "<bos>" + text + "<eos>") ==
        expected.end()) {
      expected.push_back("<bos>" + text + "<eos>");
    }
  }
  // Empty records are not duplicates of each other.
  corpus += "{\"text\":\"\"}\n{\"text\":\"\"}\n";
  for (const uint64_t part_bytes : {uint64_t{1} << 20, uint64_t{2000}}) {
    for (const uint64_t memory : {uint64_t{1} << 30, uint64_t{1} << 14}) {
      BuildOptions wanted =
          options(corpus, fmt::format("store-{}-{}", part_bytes, memory));
      wanted.drop_duplicates = true;
      wanted.part_bytes = part_bytes;
      wanted.memory_bytes = memory;
      const BuildReport report = build_store(&tokenizer, wanted);
      EXPECT_EQ(texts(wanted.out), expected);
      EXPECT_EQ(report.train.dropped.at("duplicate"),
                3000 - static_cast<int64_t>(expected.size()));
      EXPECT_EQ(report.train.dropped.at("empty"), 2);
    }
  }
}

TEST_F(BuildTest, NewlinesBecomeSpacesWhereThatIsAskedFor) {
  const std::string corpus = R"({"text":"a\nb"})"
                             "\n"
                             R"({"text":"a b"})"
                             "\n"
                             R"({"text":"\r\nc\n\n"})"
                             "\n"
                             R"({"text":"a\nb"})"
                             "\n";
  BuildOptions wanted = options(corpus);
  build_store(&tokenizer, wanted);
  EXPECT_EQ(texts(wanted.out),
            (std::vector<std::string>{"<bos>a\nb<eos>", "<bos>a b<eos>",
                                      "<bos>\r\nc\n\n<eos>", "<bos>a\nb<eos>"}));
  // Another rule for newlines makes another store, which does not replace the store at
  // the same place by itself.
  wanted.newlines_to_spaces = true;
  EXPECT_HAS(input_error([&] { build_store(&tokenizer, wanted); }),
             "holds a token store already");
  wanted.out = dir / "spaces";
  wanted.drop_duplicates = true;
  const BuildReport report = build_store(&tokenizer, wanted);
  // Only texts that were equal before newlines became spaces are duplicates, as in the
  // recipes that replace newlines.
  EXPECT_EQ(texts(wanted.out), (std::vector<std::string>{"<bos>a b<eos>", "<bos>a b<eos>",
                                                         "<bos>\r c  <eos>"}));
  EXPECT_HAS(report.train.special_tokens, "each newline of a text is a space");
  EXPECT_TRUE(build_store(&tokenizer, wanted).stood_already);
}

TEST_F(BuildTest, NewlinesOfReadyIdsAreRefused) {
  BuildOptions wanted = options("{\"input_ids\":[5,6,7]}\n");
  wanted.inputs.field = "input_ids";
  wanted.newlines_to_spaces = true;
  EXPECT_HAS(input_error([&] { build_store(&tokenizer, wanted); }),
             "--newlines-to-spaces: 'input_ids' holds ready ids, which are taken as they "
             "are; leave --newlines-to-spaces out");
  wanted.vocab_size = 10;
  EXPECT_HAS(input_error([&] { build_store(nullptr, wanted); }),
             "--newlines-to-spaces with --vocab-size");
}

TEST_F(BuildTest, ListsBadRecordsWithTheirLinesInTheWholeFile) {
  std::string corpus;
  for (int i = 1; i <= 40; ++i) {
    corpus += i % 10 == 7 ? "{\"text\":7}\n" : line("line " + std::to_string(i));
  }
  BuildOptions wanted = options(corpus);
  wanted.part_bytes = 100;
  wanted.bad_records = BadRecords::Drop;
  const BuildReport report = build_store(&tokenizer, wanted);
  EXPECT_GT(report.train.shards.size(), 3U);
  EXPECT_EQ(report.train.documents, 36);
  EXPECT_EQ(report.train.dropped.at("field is not text"), 4);
  std::vector<int> lines;
  std::vector<size_t> offsets;
  std::istringstream list(read_text(dir / "store" / "bad_records.jsonl"));
  for (std::string entry; std::getline(list, entry);) {
    const Json json = Json::parse(entry);
    lines.push_back(json.at("line").get<int>());
    const auto offset = json.at("byte").get<size_t>();
    EXPECT_EQ(corpus.substr(offset, 10), "{\"text\":7}");
    EXPECT_EQ(json.at("file"), (dir / "corpus.jsonl").string());
  }
  EXPECT_EQ(lines, (std::vector<int>{7, 17, 27, 37}));
  EXPECT_EQ(report.bad_examples.size(), 4U);

  wanted.out = dir / "limited";
  wanted.max_bad_records = 3;
  EXPECT_HAS(input_error([&] { build_store(&tokenizer, wanted); }),
             "more than 3 bad records");
  wanted.bad_records = BadRecords::Fail;
  EXPECT_HAS(input_error([&] { build_store(&tokenizer, wanted); }),
             "bad records were dropped by an earlier start");
  wanted.threads = 1;
  wanted.out = dir / "failing";
  EXPECT_HAS(input_error([&] { build_store(&tokenizer, wanted); }), "corpus.jsonl:7");
}

/// Returns the error message of a build of good.jsonl and another file. The build drops
/// bad records.
std::string refused_beside_good(BuildOptions good, const fs::path& other,
                                const ByteTokenizer& tokenizer) {
  good.inputs.arguments.push_back(other.string());
  good.bad_records = BadRecords::Drop;
  return input_error([&] { build_store(&tokenizer, good); });
}

TEST_F(BuildTest, AFileOfWhichNothingIsUsedIsRefusedThoughBadRecordsAreDropped) {
  const BuildOptions good = options(many_documents(50), "store", "good.jsonl");
  const auto said = [&](const std::string& content, const std::string& name) {
    return refused_beside_good(good, dir.write(name, content), tokenizer);
  };
  EXPECT_HAS(said(R"([{"text": "a"}, {"text": "b"}])", "a.json"), "is one JSON array");
  // The last object of this array is a valid record by itself, but the file is refused.
  EXPECT_HAS(said("[\n{\"text\": \"a\"},\n{\"text\": \"b\"}\n]\n", "b.json"),
             "is one JSON array");
  EXPECT_HAS(said("{\"text\": \"a\"},\n{\"text\": \"b\"}\n", "c.json"), "has commas");
  EXPECT_HAS(said("{\n\"text\": \"a\"\n}\n", "d.json"), "over several lines");
  EXPECT_HAS(said("{\"body\": \"a\"}\n\n{\"body\": \"b\"}\n", "e.jsonl"),
             "e.jsonl: 0 of 3 records used; the first that is left out is ");
  EXPECT_HAS(said("{\"body\": \"a\"}\n", "f.jsonl"),
             "f.jsonl:1: field missing: 'text' (its fields: 'body')");
  EXPECT_HAS(said(R"({"messages": [{"role": "user", "content": "a"}]})", "g.jsonl"),
             "records are chats ('messages')");
  EXPECT_HAS(said(gzipped("{\"body\": \"a\"}\n"), "h.jsonl.gz"), "0 of 1 record used");
  EXPECT_FALSE(fs::exists(dir / "store"));
}

TEST_F(BuildTest, AFileOfManyPartsOfWhichNothingIsUsedIsRefusedAtTheEnd) {
  BuildOptions good = options(many_documents(50), "store", "good.jsonl");
  good.part_bytes = 100;
  std::string other;
  for (int i = 0; i < 40; ++i) other += "{\"body\": \"a\"}\n";
  EXPECT_HAS(refused_beside_good(good, dir.write("other.jsonl", other), tokenizer),
             "other.jsonl: 0 of 40 records used");
}

TEST_F(BuildTest, AFileOfTextOrOfCopiesIsNoReasonToRefuse) {
  BuildOptions wanted = options(many_documents(50), "store", "good.jsonl");
  wanted.bad_records = BadRecords::Drop;
  wanted.drop_duplicates = true;
  for (const auto& [name, content] :
       {std::pair{"bad.txt", "caf\xE9"}, std::pair{"empty.jsonl", "\n\n"},
        std::pair{"copy.jsonl", "{\"body\": 1}\n{\"text\": \"document 0\"}\n"}}) {
    wanted.inputs.arguments.push_back(dir.write(name, content).string());
  }
  const BuildReport report = build_store(&tokenizer, wanted);
  EXPECT_EQ(report.train.documents, 50);
  EXPECT_EQ(report.train.dropped.at("invalid UTF-8"), 1);
  EXPECT_EQ(report.train.dropped.at("field missing"), 1);
  EXPECT_EQ(report.train.dropped.at("duplicate"), 1);
}

TEST_F(BuildTest, ReadyIdsNeedNoTokenizerAndAreCheckedAgainstTheVocabulary) {
  BuildOptions wanted = options(
      "{\"input_ids\":[5,6,7]}\n"
      "{\"input_ids\":[1,2,3,4],\"attention_mask\":[0,1,1,0]}\n");
  wanted.inputs.field = "input_ids";
  wanted.vocab_size = 100;
  const BuildReport report = build_store(nullptr, wanted);
  const TokenStore store(dir / "store");
  std::vector<int32_t> ids(6);
  std::vector<uint8_t> targets(6);
  store.read(0, ids);
  store.read_targets(0, targets);
  EXPECT_EQ(ids, (std::vector<int32_t>{5, 6, 7, 1, 2, 3}));
  EXPECT_EQ(targets, (std::vector<uint8_t>{1, 1, 1, 0, 1, 1}));
  EXPECT_EQ(report.train.padding_removed, 1);
  EXPECT_EQ(report.train.counts.ready_documents, 2);
  EXPECT_EQ(report.train.tokenizer_fingerprint, "");
  EXPECT_FALSE(report.train.self_test.has_value());
  EXPECT_EQ(bytes_per_token(dir / "store"), 0.0);

  wanted.vocab_size = 7;
  wanted.out = dir / "small";
  EXPECT_HAS(input_error([&] { build_store(nullptr, wanted); }),
             "id 7 in a vocabulary of 7");
  wanted.vocab_size = 0;
  EXPECT_HAS(input_error([&] { build_store(nullptr, wanted); }), "--vocab-size");
  BuildOptions text = options(line("words"), "text");
  text.vocab_size = 100;
  EXPECT_HAS(input_error([&] { build_store(nullptr, text); }), "there is no tokenizer");
}

TEST_F(BuildTest, ATokenizerWithTheSameFilesThatMakesOtherIdsIsRefused) {
  build_store(&tokenizer, options(line("xQz and more") + line("second")));
  check_self_test(dir / "store", tokenizer, "the tokenizer");
  const ChangedTokenizer changed(tokenizer);
  // No fixed text contains 'Q', but the store's first document does.
  const std::string message = input_error(
      [&] { check_self_test(dir / "store", changed, "the model's tokenizer"); });
  EXPECT_HAS(message, "the model's tokenizer makes other ids");
  EXPECT_HAS(message, "of 'xQz and more' id 1 is 113 where it was 81");
}

TEST_F(BuildTest, TextThatTheTokenizerCannotExpressIsABadRecord) {
  const ChangedTokenizer changed(tokenizer);
  BuildOptions wanted = options(line("one") + line("a ~ b") + line("two"));
  EXPECT_HAS(
      input_error([&] { build_store(&changed, wanted); }),
      "corpus.jsonl:2: not tokenized: no token for ~; correct the record, or leave "
      "such records out and count them with --bad-records drop");
  wanted.bad_records = BadRecords::Drop;
  const BuildReport report = build_store(&changed, wanted);
  EXPECT_EQ(texts(wanted.out),
            (std::vector<std::string>{"<bos>one<eos>", "<bos>two<eos>"}));
  EXPECT_EQ(report.train.dropped.at("not tokenized"), 1);
  EXPECT_HAS(report.bad_examples.at(0), "corpus.jsonl\",\"line\":2");
}

TEST_F(BuildTest, TheSameBuildAtItsPlaceIsDoneAlready) {
  const BuildOptions wanted = options(line("one") + line("two"));
  EXPECT_FALSE(build_store(&tokenizer, wanted).stood_already);
  const auto before = fs::last_write_time(dir / "store" / "store.json");
  const BuildReport again = build_store(&tokenizer, wanted);
  EXPECT_TRUE(again.stood_already);
  EXPECT_EQ(again.train.documents, 2);
  EXPECT_EQ(fs::last_write_time(dir / "store" / "store.json"), before);
}

}  // namespace
}  // namespace longhaul::data
