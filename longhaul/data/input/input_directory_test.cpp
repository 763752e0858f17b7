#include "longhaul/data/input/input_directory.h"

#include <gtest/gtest.h>

#include "tests/support/inputs.h"

namespace longhaul::data {
namespace {

class Directories : public ::testing::Test {
 protected:
  void make(const std::string& name, const std::string& text = "{\"text\":\"x\"}\n") {
    fs::create_directories((dir_ / name).parent_path());
    dir_.write(name, text);
  }
  InputOptions options(const std::string& format = "") const {
    InputOptions options = inputs_of({dir_ / "in"});
    if (!format.empty()) options.format = parse_format(format);
    return options;
  }
  /// Returns the names of the files that are read, then the message about the other
  /// files.
  std::string read(const std::string& format = "") const {
    const InputSet inputs(options(format));
    std::string text;
    for (const InputFile& file : inputs.files()) {
      text += file.path.filename().string() + " ";
    }
    return text + "| " + inputs.passed_over();
  }
  TestDirectory dir_;
};

TEST_F(Directories, OfOneKindAreReadAndWhatIsNoCorpusIsCountedAndNamed) {
  make("in/b.json.gz", gzipped("{\"text\":\"two\"}\n"));
  make("in/a.json.gz", gzipped("{\"text\":\"one\"}\n"));
  for (const char* name :
       {"in/LICENSE", "in/README.md", "in/.gitattributes", "in/LICENSE-MIT",
        "in/a.json.gz.sha256", "in/_SUCCESS", "in/plot.png"}) {
    make(name, "no corpus");
  }
  EXPECT_EQ(read(),
            "a.json.gz b.json.gz | 7 files or directories passed over as no corpus: "
            ".gitattributes, LICENSE, LICENSE-MIT, README.md, _SUCCESS, "
            "a.json.gz.sha256, plot.png");
  EXPECT_EQ(read_records(options()), (Records{"one", "two"}));
}

TEST_F(Directories, OfSeveralKindsAreRefusedWithTheCountOfEachAndHowToChoose) {
  for (const char* name : {"in/a.jsonl", "in/b.json", "in/c.txt", "in/d.parquet"}) {
    make(name);
  }
  const std::string message = input_error([&] { read(); });
  EXPECT_HAS(message,
             "data of several kinds: 1 file of text (such as c.txt), 2 files of "
             "jsonl (such as ");
  EXPECT_HAS(message,
             "1 file of parquet (such as d.parquet); name the files that you mean: ");
  EXPECT_HAS(message, "/in/*.txt'");
  EXPECT_HAS(message, "/in/*.parquet'");
}

TEST_F(Directories, AreTextOfAnyNameWhereTheFormatSaysSo) {
  for (const char* name : {"in/a.py", "in/b.md", "in/notes", "in/c.rst", "in/test_c.cpp",
                           "in/train.cpp", "in/README.md", "in/LICENSE", "in/.hidden"}) {
    make(name, "words");
  }
  const std::string message = input_error([&] { read(); });
  EXPECT_HAS(message,
             "holds no file whose name says that it is data; 9 files or directories "
             "passed over as no corpus: ");
  EXPECT_HAS(message, "--format");
  EXPECT_EQ(read("text"),
            "README.md a.py b.md c.rst notes test_c.cpp train.cpp | 2 files or "
            "directories passed over as no corpus: .hidden, LICENSE");
}

TEST_F(Directories, WithDirectoriesOfDataAreNeverReadInPart) {
  make("in/a.jsonl");
  make("in/more/b.jsonl");
  EXPECT_HAS(input_error([&] { read(); }),
             "/in/**/*.jsonl' for all the files, or '" + (dir_ / "in/*.jsonl'").string());
  fs::remove(dir_ / "in/a.jsonl");
  EXPECT_HAS(input_error([&] { read(); }), "holds no data itself, but directories with");
  fs::remove(dir_ / "in/more/b.jsonl");
  make("in/a.jsonl");
  make("in/more/plot.png");
  make("in/out.building/inputs.jsonl");  // belongs to an unfinished build
  make("in/store/store.json");
  EXPECT_EQ(read(),
            "a.jsonl | 3 files or directories passed over as no corpus: more, "
            "out.building, store");
}

TEST_F(Directories, OfSplitsAndOfPackingsThatAreNotReadAreRefused) {
  make("in/train.jsonl");
  make("in/test.jsonl");
  EXPECT_HAS(input_error([&] { read(); }), "files of several splits (test, train)");
  fs::remove(dir_ / "in/test.jsonl");
  make("in/more.jsonl.bz2");
  EXPECT_HAS(input_error([&] { read(); }),
             "holds more.jsonl.bz2, and .bz2 files are not");
  fs::remove_all(dir_ / "in");
  fs::create_directories(dir_ / "in");
  EXPECT_HAS(input_error([&] { read(); }), "/in: is empty");
}

TEST_F(Directories, AreWhatAPatternForEverythingReadsOfThem) {
  make("in/a.jsonl");
  make("in/more/b.jsonl");
  make("in/README.md");
  make("in/more/LICENSE");
  for (const char* pattern : {"in/**", "in/**/*"}) {
    const InputSet inputs(inputs_of({dir_ / pattern}));
    ASSERT_EQ(inputs.files().size(), 2U) << pattern;
    EXPECT_EQ(inputs.files()[1].path.filename(), "b.jsonl");
    EXPECT_EQ(inputs.passed_over(),
              "2 files or directories passed over as no corpus: "
              "README.md, LICENSE");
  }
  // Here the last part of the pattern is more than * or **, so README.md is read.
  EXPECT_EQ(InputSet(inputs_of({dir_ / "in/*.md"})).files().size(), 1U);
}

TEST_F(Directories, OfSaveToDiskAreRefusedWithAnotherFormat) {
  make("in/dataset_info.json", "{}");
  make("in/data.arrow", "");
  make("in/state.json", R"({"_data_files":[{"filename":"data.arrow"}]})");
  EXPECT_HAS(input_error([&] { read("text"); }), "leave --format out");
  EXPECT_EQ(read("arrow"), "data.arrow | ");
}

TEST(InputOptions, ThatNoFileObeysAreRefused) {
  const TestDirectory dir;
  const auto text = dir.write("a.txt", "x");
  const auto lines = dir.write("a.jsonl", "{\"text\":\"x\"}\n");
  InputOptions options = inputs_of({text});
  options.field_asked = true;
  EXPECT_HAS(input_error([&] { InputSet{options}; }),
             "--field text: each input is a file of text");
  options.arguments.push_back(lines.string());
  EXPECT_EQ(InputSet(options).files().size(), 2U);
  options.delimiter = ';';
  EXPECT_HAS(input_error([&] { InputSet{options}; }),
             "--delimiter: none of the inputs is CSV");
}

}  // namespace
}  // namespace longhaul::data
