#include "longhaul/data/input/input_set.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "longhaul/base/hash.h"
#include "tests/support/inputs.h"

namespace longhaul::data {
namespace {

std::string json_line(const std::string& text) { return "{\"text\":\"" + text + "\"}\n"; }

TEST(Parts, ReadEveryLineOnceAndKnowItsPlaceWhateverTheirSize) {
  const TestDirectory dir;
  std::string lines;
  for (size_t i = 0; i < 40; ++i) {
    lines += i % 7 == 3 ? "\n" : json_line(std::string(1 + i * i % 97, 'x'));
  }
  lines += "{\"text\":\"no line end\"}";
  const auto file = dir.write("a.jsonl", lines);
  const Records whole = read_records(inputs_of({file}), uint64_t{1} << 40, nullptr, true);
  ASSERT_EQ(whole.size(), 41U);
  for (const uint64_t about : {1, 2, 3, 10, 50, 200, 1000, 2000}) {
    std::vector<FinishedRange> ranges;
    EXPECT_EQ(read_records(inputs_of({file}), about, &ranges, true), whole) << about;
    EXPECT_EQ(ranges.size(), (lines.size() + about - 1) / about);
    uint64_t bytes = 0;
    int64_t line_ends = 0;
    int64_t records = 0;
    for (const FinishedRange& part : ranges) {
      EXPECT_EQ(part.range.begin, bytes);
      const uint64_t end = std::min<uint64_t>(part.range.end, lines.size());
      EXPECT_EQ(part.stored_bytes, end - part.range.begin);
      EXPECT_EQ(part.hash, hash_hex(lines.substr(part.range.begin, part.stored_bytes)));
      EXPECT_EQ(InputSet(inputs_of({file})).lines_before(0, bytes), line_ends);
      bytes += part.stored_bytes;
      line_ends += part.lines;
      records += part.records;
    }
    EXPECT_EQ(bytes, lines.size());
    EXPECT_EQ(line_ends, 40);
    EXPECT_EQ(records, 41);
  }
}

TEST(Parts, GiveSmallFilesToOneAndCutBigOnes) {
  const TestDirectory dir;
  const auto small_1 = dir.write("a.jsonl", std::string(10, '\n'));
  const auto small_2 = dir.write("b.txt", std::string(20, 'x'));
  const auto big = dir.write("c.jsonl", std::string(100, '\n'));
  const auto whole = dir.write("d.jsonl.gz", gzipped(std::string(1 << 20, '\n')));
  const InputSet inputs(inputs_of({small_1, small_2, big, whole}));
  const uint64_t packed = inputs.files()[3].stored_bytes;
  ASSERT_GT(packed, 100U);
  const std::vector<InputPart> parts = inputs.parts(40);
  ASSERT_EQ(parts.size(), 5U);
  EXPECT_EQ(parts[0],
            (InputPart{{{0, 0, InputRange::kToEnd}, {1, 0, InputRange::kToEnd}}, 30}));
  EXPECT_EQ(parts[1], (InputPart{{{2, 0, 33}}, 33}));
  EXPECT_EQ(parts[2], (InputPart{{{2, 33, 66}}, 33}));
  EXPECT_EQ(parts[3], (InputPart{{{2, 66, 100}}, 34}));
  EXPECT_EQ(parts[4], (InputPart{{{3, 0, InputRange::kToEnd}}, packed}));
  EXPECT_EQ(inputs.parts(40), parts);
}

TEST(Parts, MayBeReadSideBySide) {
  const TestDirectory dir;
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += json_line("text " + std::to_string(i));
  const InputSet inputs(inputs_of(
      {dir.write("a.jsonl", lines), dir.write("b.jsonl.gz", gzipped(lines)),
       dir.write("c.csv", "text\nx\n"), dir.write("d.jsonl.zst", zstd_packed(lines))}));
  const std::vector<InputPart> parts = inputs.parts(10'000);
  ASSERT_GT(parts.size(), 6U);
  std::vector<int64_t> records(parts.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < parts.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto reader = inputs.open(parts[i]);
      for (RawRecord record; reader->next(record);) {
        if (parse_record(record, inputs.options()).problem == RecordProblem::None) {
          ++records[i];
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::accumulate(records.begin(), records.end(), int64_t{0}), 9001);
}

TEST(Parts, HashPackedFilesAsStored) {
  const TestDirectory dir;
  const std::string packed = gzipped(json_line("x") + json_line("y"));
  std::vector<FinishedRange> ranges;
  read_records(inputs_of({dir.write("a.jsonl.gz", packed), dir.write("b.txt", "{}\n")}),
               uint64_t{1} << 40, &ranges);
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[0].hash, hash_hex(packed));
  EXPECT_EQ(ranges[0].stored_bytes, packed.size());
  EXPECT_EQ(ranges[0].records, 2);
  EXPECT_EQ(ranges[1].hash, hash_hex("{}\n"));
}

TEST(Zstd, ReadsFramesOneAfterAnother) {
  const TestDirectory dir;
  std::string lines;
  Records expected;
  for (size_t i = 0; i < 60; ++i) {
    expected.emplace_back(1 + i * 1777, static_cast<char>('a' + i % 26));
    lines += json_line(expected.back());
  }
  const auto file =
      dir.write("a.jsonl.zst", zstd_packed(lines.substr(0, 50'001)) + zstd_packed("") +
                                   zstd_packed(lines.substr(50'001)));
  EXPECT_EQ(read_records(inputs_of({file})), expected);
  EXPECT_EQ(read_records(inputs_of({dir.write("b.txt.zst", zstd_packed("a\nb"))})),
            (Records{"a\nb"}));
}

TEST(Zstd, RefusesTruncatedAndDamagedData) {
  const TestDirectory dir;
  std::string lines;
  for (int i = 0; i < 5000; ++i) lines += json_line(std::to_string(i * 7919));
  const std::string packed = zstd_packed(lines);
  for (const size_t size : {size_t{0}, size_t{3}, packed.size() / 2, packed.size() - 1}) {
    const auto cut = dir.write("cut.jsonl.zst", packed.substr(0, size));
    const std::string message = input_error([&] { read_records(inputs_of({cut})); });
    EXPECT_HAS(message, "cut.jsonl.zst: the zstd data ends early: the file is truncated");
    EXPECT_HAS(message, "at byte " + std::to_string(size));
  }
  for (size_t at = 0; at < packed.size(); at += 1 + packed.size() / 40) {
    std::string flipped = packed;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
    const auto bad = dir.write("bad.jsonl.zst", flipped);
    EXPECT_HAS(input_error([&] { read_records(inputs_of({bad})); }), "bad.jsonl.zst: ");
  }
  const auto tail = dir.write("tail.jsonl.zst", packed + "rubbish");
  EXPECT_HAS(input_error([&] { read_records(inputs_of({tail})); }),
             "not valid zstd data");
}

TEST(Zstd, RefusesWindowsThatNeedMuchMemory) {
  const TestDirectory dir;
  const auto good = dir.write("27.jsonl.zst", zstd_packed(json_line("x"), 27));
  EXPECT_EQ(read_records(inputs_of({good})), (Records{"x"}));
  const auto wide = dir.write("28.jsonl.zst", zstd_packed(json_line("x"), 28));
  EXPECT_HAS(input_error([&] { read_records(inputs_of({wide})); }),
             "a zstd frame with a window above 128 MiB");
}

TEST(Gzip, RefusesEveryFlippedByte) {
  const TestDirectory dir;
  std::string lines;
  for (int i = 0; i < 300; ++i) lines += json_line(std::to_string(i * 7919));
  const std::string packed = gzipped(lines);
  for (size_t at = 10; at < packed.size(); at += 17) {
    std::string flipped = packed;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
    const auto bad = dir.write("bad.jsonl.gz", flipped);
    EXPECT_HAS(input_error([&] { read_records(inputs_of({bad})); }), "bad.jsonl.gz: ");
  }
}

TEST(Records, AboveTheLimitAreSkippedAndCounted) {
  const TestDirectory dir;
  InputOptions options = inputs_of(
      {dir.write("a.jsonl", json_line("one") + json_line(std::string(3 << 20, 'x')) +
                                json_line("two")),
       dir.write("b.txt", std::string(3 << 20, 'x'))});
  options.max_record_bytes = 1 << 20;
  EXPECT_EQ(read_records(options),
            (Records{"one", "!too long: more than 1.0 MB; split it into documents", "two",
                     "!too long: more than 1.0 MB; split it into documents"}));
}

TEST(Records, LeaveOutTheByteOrderMark) {
  const TestDirectory dir;
  const auto lines = dir.write("a.jsonl", "\xEF\xBB\xBF" + json_line("x"));
  const auto text = dir.write("b.txt", "\xEF\xBB\xBFy");
  EXPECT_EQ(read_records(inputs_of({lines, text})), (Records{"x", "y"}));
  // The records are also complete if a range ends inside the byte order mark.
  EXPECT_EQ(read_records(inputs_of({lines, text}), 2), (Records{"x", "y"}));
}

TEST(Records, AreIdsWithTheTokensThatAreNoTargets) {
  const std::string shifted =
      "!bad labels: label 2 at position 0, where the id is 1; labels must be the ids "
      "themselves, not shifted, or -100";
  const TestDirectory dir;
  const auto file = dir.write(
      "a.jsonl",
      "{\"input_ids\":[5,6,7]}\n"
      "{\"input_ids\":[5,6,7,0,0],\"attention_mask\":[1,1,1,0,0]}\n"
      "{\"input_ids\":[5,6,7],\"attention_mask\":[0,1,1],\"labels\":[5,-100,7]}\n"
      "{\"input_ids\":[5,6,7,0],\"attention_mask\":[false,true,true,false]}\n"
      "{\"input_ids\":[true],\"attention_mask\":[true]}\n"
      "{\"input_ids\":[5,6],\"labels\":[5,6]}\n"
      "{\"input_ids\":[0,0],\"attention_mask\":[0,0]}\n"
      "{\"input_ids\":[]}\n"
      "{\"input_ids\":[2147483647]}\n"
      "{\"input_ids\":[1,-1]}\n"
      "{\"input_ids\":[2147483648]}\n"
      "{\"input_ids\":[18446744073709551615]}\n"
      "{\"input_ids\":[1,2.0]}\n"
      "{\"input_ids\":[[1]]}\n"
      "{\"input_ids\":[1,2],\"labels\":[2,-100]}\n"
      "{\"input_ids\":[1,2],\"labels\":[1]}\n"
      "{\"input_ids\":[1,2],\"labels\":null}\n"
      "{\"input_ids\":[1,2],\"attention_mask\":[1,2]}\n"
      "{\"input_ids\":[1,2],\"attention_mask\":[1,1,1]}\n"
      "{\"input_ids\":[1,2],\"attention_mask\":1}\n"
      "{\"input_ids\":[1],\"labels\":[1],\"labels\":[1]}\n"
      "{\"input_ids\":\"text\",\"labels\":0}\n");
  EXPECT_EQ(read_records(inputs_of({file}, "input_ids")),
            (Records{"[5 6 7]",
                     "[5 6 7]-2",
                     "[5* 6* 7]",
                     "[5* 6 7]-1",
                     "!field is not text: 'input_ids' is a list, but not of integers",
                     "[5 6]",
                     "!empty",
                     "!empty",
                     "[2147483647]",
                     "!token id out of range: -1 at position 1",
                     "!token id out of range: 2147483648 at position 0",
                     "!token id out of range: 18446744073709551615 at position 0",
                     "!field is not text: 'input_ids' is a list, but not of integers",
                     "!field is not text: 'input_ids' is a list, but not of integers",
                     shifted,
                     "!bad labels: 1 values for 2 ids",
                     "!bad labels: not a list of integers",
                     "!bad attention_mask: 2 at position 1",
                     "!bad attention_mask: 3 values for 2 ids",
                     "!bad attention_mask: not a list of integers or of true and false",
                     "!field stands twice: 'labels'",
                     "text"}));
}

TEST(InputFiles, AreThoseOfADatasetInTheOrderOfItsState) {
  const TestDirectory dir;
  fs::create_directories(dir / "saved");
  dir.write("saved/data-00001-of-00002.arrow", "");
  dir.write("saved/data-00000-of-00002.arrow", "");
  dir.write("saved/other.arrow", "");
  dir.write("saved/state.json",
            R"({"_data_files":[{"filename":"data-00001-of-00002.arrow"},)"
            R"({"filename":"data-00000-of-00002.arrow"}],"_indices_data_files":[]})");
  EXPECT_HAS(input_error([&] { InputSet(inputs_of({dir / "saved"})); }),
             "lacks the dataset_info.json");
  dir.write("saved/dataset_info.json", "{}");
  const InputSet inputs(inputs_of({dir / "saved"}));
  ASSERT_EQ(inputs.files().size(), 2U);
  EXPECT_EQ(inputs.files()[0].path.filename(), "data-00001-of-00002.arrow");
  EXPECT_EQ(inputs.files()[0].format, InputFormat::Arrow);
  dir.write("saved/state.json",
            R"({"_data_files":[{"filename":"../saved/other.arrow"}]})");
  EXPECT_HAS(input_error([&] { InputSet(inputs_of({dir / "saved"})); }), "..");
  dir.write("saved/state.json", R"({"_data_files":[{"filename":"gone.arrow"}]})");
  EXPECT_HAS(input_error([&] { InputSet(inputs_of({dir / "saved"})); }),
             "gone.arrow: missing, but state.json names it");
  dir.write("saved/state.json", R"({"_data_files":[{"filename":"other.arrow"}],)"
                                R"("_indices_data_files":[{"filename":"i.arrow"}]})");
  EXPECT_HAS(input_error([&] { InputSet(inputs_of({dir / "saved"})); }),
             "flatten_indices");
}

TEST(InputFiles, AreTheParquetFilesOfADirectoryButNeverOfSeveralSplits) {
  const TestDirectory dir;
  fs::create_directories(dir / "hub");
  dir.write("hub/train-00001-of-00002.parquet", "");
  dir.write("hub/train-00000-of-00002.parquet", "");
  dir.write("hub/README.md", "");
  const InputSet inputs(inputs_of({dir / "hub"}));
  ASSERT_EQ(inputs.files().size(), 2U);
  EXPECT_EQ(inputs.files()[0].path.filename(), "train-00000-of-00002.parquet");
  dir.write("hub/test-00000-of-00001.parquet", "");
  EXPECT_HAS(input_error([&] { InputSet(inputs_of({dir / "hub"})); }),
             "files of several splits");
  fs::create_directories(dir / "dict");
  dir.write("dict/dataset_dict.json", "{}");
  EXPECT_HAS(input_error([&] { InputSet(inputs_of({dir / "dict"})); }),
             "a dataset of several splits; name one");
}

TEST(InputFiles, OfKindsThatAreNotReadAreRefused) {
  const TestDirectory dir;
  for (const std::string name : {"a.txt.bz2", "a.jsonl.xz", "a.zip", "a.pdf"}) {
    EXPECT_HAS(input_error([&] { InputSet(inputs_of({dir.write(name, "x")})); }),
               "files are not read");
  }
  EXPECT_HAS(input_error([&] { InputSet(inputs_of({dir.write("a.parquet.gz", "")})); }),
             "compressed inside");
  const auto packed = dir.write("a.jsonl", gzipped("{}\n"));
  EXPECT_HAS(input_error([&] { read_records(inputs_of({packed})); }),
             "a.jsonl: gzip data in a file whose name does not say so");
}

TEST(InputFiles, TakeTheFormatThatIsNamed) {
  const TestDirectory dir;
  InputOptions options = inputs_of({dir.write("lines.dat.gz", gzipped(json_line("x")))});
  EXPECT_HAS(input_error([&] { read_records(options); }),
             "the ending .dat does not tell the format of the file");
  options.format = parse_format("jsonl");
  EXPECT_EQ(read_records(options), (Records{"x"}));
  EXPECT_HAS(
      input_error([] { parse_format("xml"); }),
      "unknown format 'xml' of inputs; known formats are text, jsonl, csv, parquet, "
      "arrow");
}

TEST(InputFiles, ThatChangeAreNoticed) {
  const TestDirectory dir;
  const auto file = dir.write("a.jsonl", json_line("x"));
  const InputSet before(inputs_of({file}));
  const std::string print = before.fingerprint();
  EXPECT_EQ(InputSet(inputs_of({file})).fingerprint(), print);
  EXPECT_NE(InputSet(inputs_of({file}, "other")).fingerprint(), print);
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  EXPECT_NE(InputSet(inputs_of({file})).fingerprint(), print);
  dir.write("a.jsonl", json_line("xy"));
  EXPECT_NE(InputSet(inputs_of({file})).fingerprint(), print);
  const auto reader = before.open(before.parts(1 << 20).front());
  RawRecord record;
  EXPECT_HAS(input_error([&] { reader->next(record); }),
             "a.jsonl: has 14 bytes now, but had 13 when this command began");
}

TEST(BadRecords, AreListedAsJson) {
  EXPECT_EQ(
      bad_record_json("a\xFF.jsonl", false, 7, 120, RecordProblem::InvalidJson,
                      "say \"what\""),
      "{\"byte\":120,\"detail\":\"say \\\"what\\\"\",\"file\":\"a\xEF\xBF\xBD.jsonl\","
      "\"line\":7,\"problem\":\"invalid JSON\"}\n");
  EXPECT_EQ(bad_record_json("b.parquet", true, 0, -1, RecordProblem::BadMask, ""),
            "{\"file\":\"b.parquet\",\"problem\":\"bad attention_mask\",\"row\":0}\n");
}

}  // namespace
}  // namespace longhaul::data
