// Inputs that lie in an object store.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/inputs.h"
#include "tests/support/memory_objects.h"

namespace longhaul::data {
namespace {

std::string line(const std::string& text) { return "{\"text\":\"" + text + "\"}\n"; }

class ObjectInputs : public ::testing::Test {
 protected:
  InputOptions options(const std::vector<std::string>& arguments) const {
    InputOptions options;
    options.arguments = arguments;
    options.objects = objects_;
    return options;
  }
  /// Returns the addresses that an argument names, without "s3://bucket/", joined by
  /// blanks.
  std::string named(const std::string& argument) const {
    std::string text;
    const InputSet inputs(options({argument}));
    for (const InputFile& file : inputs.files()) {
      const std::string address = file.path.string();
      EXPECT_TRUE(address.starts_with("s3://bucket/")) << address;
      text +=
          (text.empty() ? "" : " ") + address.substr(std::string("s3://bucket/").size());
    }
    return text;
  }
  std::string error(const std::string& argument) const {
    return input_error([&] { named(argument); });
  }
  std::string fingerprint() const {
    return InputSet(options({"s3://bucket/in"})).fingerprint();
  }
  std::shared_ptr<MemoryObjects> objects_ = std::make_shared<MemoryObjects>();
};

TEST_F(ObjectInputs, AreNamedByAddressPatternAndPrefix) {
  for (const char* key : {"in/c.jsonl", "in/a.jsonl", "in/b/d.jsonl", "in/.e.jsonl",
                          "in/LICENSE", "inside/f.jsonl", "in.jsonl", "top.txt"}) {
    objects_->put(key, line(key));
  }
  EXPECT_EQ(named("s3://bucket/in/c.jsonl"), "in/c.jsonl");
  EXPECT_EQ(named("s3://bucket/in/*.jsonl"), "in/a.jsonl in/c.jsonl");
  EXPECT_EQ(named("s3://bucket/in/**/*.jsonl"), "in/a.jsonl in/b/d.jsonl in/c.jsonl");
  EXPECT_EQ(named("s3://bucket/**/*.jsonl"),
            "in.jsonl in/a.jsonl in/b/d.jsonl in/c.jsonl inside/f.jsonl");
  EXPECT_EQ(named("s3://bucket/in*/?.jsonl"), "in/a.jsonl in/c.jsonl inside/f.jsonl");
  EXPECT_EQ(named("s3://bucket/inside/"), "inside/f.jsonl");
  EXPECT_EQ(named("s3://bucket/in/b"), "in/b/d.jsonl");
  EXPECT_HAS(error("s3://bucket/in"),
             "s3://bucket/in: holds data and also directories with data, "
             "such as s3://bucket/in/b/d.jsonl; write "
             "'s3://bucket/in/**/*.jsonl' for all the files");
  EXPECT_HAS(error("s3://bucket/in/*.csv"), "'s3://bucket/in/*.csv' matches no object");
  EXPECT_HAS(error("s3://bucket/no/such.jsonl"),
             "s3://bucket/no/such.jsonl: no such object, and none below it");
  EXPECT_HAS(error("s3://bucket/in/**.jsonl"), "'**.jsonl' holds more than **");
}

TEST_F(ObjectInputs, ANameBothOfAnObjectAndOfAPrefixMeansTheObject) {
  objects_->put("in/a.jsonl", line("one"));
  objects_->put("in/a.jsonl/b.jsonl", line("two"));
  EXPECT_EQ(named("s3://bucket/in/a.jsonl"), "in/a.jsonl");
}

TEST_F(ObjectInputs, AreNotListedWhereAnAddressNamesOne) {
  objects_->put("in/a.jsonl", line("one"));
  objects_->before_list = [] { throw InputError("objects", "listing is not allowed"); };
  EXPECT_EQ(named("s3://bucket/in/a.jsonl"), "in/a.jsonl");
  EXPECT_HAS(error("s3://bucket/in"), "listing is not allowed");
}

TEST_F(ObjectInputs, WhoseKeysAreNoPathsArePassedOverAndNamed) {
  objects_->put("in/a.jsonl", line("one"));
  objects_->put("in//b.jsonl", line("two"));
  const InputSet inputs(options({"s3://bucket/in"}));
  EXPECT_EQ(inputs.files().size(), 1U);
  EXPECT_HAS(inputs.passed_over(), ": s3://bucket/in//b.jsonl");
  objects_->remove("in/a.jsonl");
  EXPECT_HAS(error("s3://bucket/in"),
             "none below it whose key is a path, as that of s3://bucket/in//b.jsonl is");
}

TEST_F(ObjectInputs, GiveTheRecordsThatTheSameFilesGive) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += line("document " + std::to_string(i));
  const TestDirectory dir;
  const std::vector<fs::path> files = {dir.write("a.jsonl", text),
                                       dir.write("b.json.gz", gzipped(text)),
                                       dir.write("c.jsonl.zst", zstd_packed(text))};
  std::vector<std::string> addresses;
  for (const fs::path& file : files) {
    objects_->put(file.filename().string(), read_text(file));
    addresses.push_back("s3://bucket/" + file.filename().string());
  }
  std::vector<FinishedRange> of_files;
  std::vector<FinishedRange> of_objects;
  EXPECT_EQ(read_records(options(addresses), 20'000, &of_objects, true),
            read_records(inputs_of(files), 20'000, &of_files, true));
  ASSERT_EQ(of_objects.size(), of_files.size());
  for (size_t i = 0; i < of_files.size(); ++i) {
    EXPECT_EQ(of_objects[i].hash, of_files[i].hash);
  }
}

TEST_F(ObjectInputs, SavedWithSaveToDiskAreReadInTheOrderOfTheirState) {
  objects_->put("set/state.json",
                R"({"_data_files": [{"filename": "z.arrow"}, {"filename": "a.arrow"}]})");
  objects_->put("set/dataset_info.json", "{}");
  objects_->put("set/z.arrow", "z");
  objects_->put("set/a.arrow", "a");
  EXPECT_EQ(named("s3://bucket/set"), "set/z.arrow set/a.arrow");
  objects_->remove("set/a.arrow");
  EXPECT_HAS(error("s3://bucket/set"),
             "s3://bucket/set/a.arrow: missing, but state.json names it");
}

TEST_F(ObjectInputs, AreKnownAgainByTheirVersion) {
  objects_->put("in/a.jsonl", line("one"));
  const std::string before = fingerprint();
  EXPECT_EQ(fingerprint(), before);
  objects_->put("in/a.jsonl", line("two"));
  EXPECT_NE(fingerprint(), before);
}

TEST_F(ObjectInputs, ThatAreReplacedWhileTheyAreReadGiveNoFinishedRange) {
  objects_->put("in/a.jsonl", line("one") + line("two"));
  const InputSet inputs(options({"s3://bucket/in/a.jsonl"}));
  const auto parts = inputs.parts(1 << 20);
  const auto reader = inputs.open(parts.at(0));
  RawRecord record;
  ASSERT_TRUE(reader->next(record));
  objects_->put("in/a.jsonl", line("ONE") + line("TWO"));
  const auto read_on = [&] {
    while (reader->next(record)) {
    }
  };
  EXPECT_HAS(input_error(read_on), "s3://bucket/in/a.jsonl: was replaced");
  EXPECT_TRUE(reader->finished().empty());
}

TEST_F(ObjectInputs, ReportTheirAddressInProblems) {
  objects_->put("in/a.jsonl", line("one") + "{broken\n");
  const InputSet inputs(options({"s3://bucket/in/a.jsonl"}));
  EXPECT_EQ(inputs.describe({0, 2, 0, 0}), "s3://bucket/in/a.jsonl:2");
  objects_->put("in/b.json", gzipped(line("one")));
  const auto packed = [&] { read_records(options({"s3://bucket/in/b.json"})); };
  EXPECT_HAS(input_error(packed),
             "s3://bucket/in/b.json: gzip data in a file whose name");
}

}  // namespace
}  // namespace longhaul::data
