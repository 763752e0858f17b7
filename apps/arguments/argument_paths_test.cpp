#include "apps/arguments/argument_paths.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "longhaul/base/text.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::apps {
namespace {

constexpr const char* kNoUse = "it is the address of an object, which has no use here";

/// Verbs that read or write by address, and one that does neither.
class FewVerbs {
 public:
  FewVerbs() {
    CLI::App* data = app_.add_subcommand("data");
    CLI::App* split = data->add_subcommand("split");
    split->add_option("store", text_);
    for (const char* name : {"--out-train", "--out-validation", "--outlier", "--share"}) {
      split->add_option(name, text_);
    }
    CLI::App* exports_data = data->add_subcommand("export");
    exports_data->add_option("store", text_);
    exports_data->add_option("--out", text_);
    CLI::App* exports = app_.add_subcommand("export");
    exports->add_option("source", text_);
    exports->add_option("--out", text_);
    exports->add_flag("--force", flag_);
    CLI::App* report = app_.add_subcommand("report");
    report->add_option("run", list_);
    report->add_option("--against", text_);
    CLI::App* fresh = app_.add_subcommand("new");
    fresh->add_option("model", text_);
    fresh->add_option("data", list_);
    fresh->add_option("--field", text_);
    CLI::App* submit = app_.add_subcommand("submit");
    submit->add_option("config", list_);
    submit->add_option("--container", text_);
    refuse_wrong_paths(app_);
  }

  /// Returns what is wrong with a command line, or nothing.
  std::string problem(const std::string& line) {
    std::vector<std::string> words = split_words(line);
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    try {
      app_.parse(reversed);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  }

 private:
  CLI::App app_{"", "longhaul"};
  std::string text_;
  std::vector<std::string> list_;
  bool flag_ = false;
};

TEST(ArgumentPaths, AnAddressStandsOnlyWhereItIsReadOrWrittenTo) {
  FewVerbs program;
  for (const char* line :
       {"data split s3://corpus/store", "export s3://corpus/run --out s3://corpus/hf",
        "data export s3://corpus/store --out hf", "export s3://corpus/pay$HOME",
        "export --force s3://corpus/run", "new m d --field s3://corpus/x",
        "submit watch s3://corpus/run"}) {
    EXPECT_EQ(program.problem(line), "") << line;
  }
  for (const char* line :
       {"data split s --out-train s3://corpus/T", "data split s --out-validation=s3:/c/V",
        "data split s --outlier s3://corpus/T", "data split s --share s3://corpus/T",
        "data export s --out s3://corpus/hf", "report s3://corpus/run",
        "report a s3://corpus/run", "report a --against s3://corpus/run",
        "new s3://corpus/model d", "submit run.toml --container s3://corpus/image"}) {
    EXPECT_HAS(program.problem(line), kNoUse);
  }
  EXPECT_HAS(program.problem("new m s3://corpus/store"), "may then name the address");
  EXPECT_HAS(program.problem("export a --out s3://c/x"), "no name of a bucket");
  EXPECT_HAS(program.problem("export a --out s3://corpus/x*"), "a character of patterns");
  EXPECT_HAS(program.problem("export a --out gs://corpus/x"), "opens no addresses but");
  EXPECT_HAS(program.problem("data split s --out-train gs://corpus/x"),
             "opens no addresses but");
  EXPECT_HAS(program.problem("report $HOME/a"), "only a shell replaces");
}

TEST(ArgumentPaths, NoDirectoryExcusesTheAddressOfAnOutput) {
  FewVerbs program;
  const TestDirectory dir;
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  fs::create_directories("s3:/corpus");
  const std::string problem = program.problem("data split s --out-train s3://corpus/T");
  fs::current_path(before);
  EXPECT_HAS(problem, kNoUse);
}

TEST(ArgumentPaths, AnOutputIsNeitherAnotherOutputNorWhatIsRead) {
  FewVerbs program;
  const TestDirectory dir;
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  fs::create_directories("s/tokenizer");
  fs::create_directory_symlink("s", "link");
  std::vector<std::string> wrong;
  for (const char* line :
       {"data split s --out-train x --out-validation x",
        "data split s --out-train x --out-validation ./y/../x/",
        "data split s --out-train s --out-validation x",
        "data split s --out-train x --out-validation=link",
        "data split link/ --out-train s/tokenizer/.. --out-validation x",
        "data split s --out-train new/x --out-validation link/../new/x",
        "export s3://corpus/a --out s3://corpus/a/", "export s --out link"}) {
    if (program.problem(line).find("are one place") == std::string::npos) {
      wrong.emplace_back(line);
    }
  }
  for (const char* line :
       {"data split s --out-train x --out-validation y", "data split x --out-train x",
        "data split s --out-train s/x --out-validation s/y",
        "data split s --out-train 5 --share 5", "export a --out s3://corpus/a"}) {
    if (!program.problem(line).empty()) wrong.emplace_back(line);
  }
  fs::current_path(before);
  EXPECT_EQ(wrong, std::vector<std::string>{});
}

TEST(ArgumentPaths, TheOutputsOfAVerbForAnotherStartAreLookedAtNow) {
  const auto problem = [](const std::string& line) {
    return problem_of_outputs(split_words(line));
  };
  for (const char* line :
       {"export a --out s3://corpus/x", "data build a --out=s3://corpus/x", "train a",
        "data build-bert a --out s3://corpus/x", "data split a --out-train b --out", "",
        "data", "eval a --data s3://corpus/x", "data split s3://corpus/x --share 1%"}) {
    EXPECT_EQ(problem(line), "") << line;
  }
  for (const char* line : {"data split a --out-train s3://corpus/x",
                           "data split a --out-train b --out-validation=s3://corpus/x",
                           "bench --dir s3://corpus/x", "new m d --out s3://corpus/x"}) {
    EXPECT_HAS(problem(line), kNoUse);
  }
  EXPECT_HAS(problem("export a --out gs://corpus/x"), "opens no addresses but");
  EXPECT_HAS(problem("export a --out s3://c/x"), "--out: s3://c/x: 'c' is no name of a");
  EXPECT_HAS(problem("data build a --out=s3://corpus/x?"), "a character of patterns");
}

TEST(ArgumentPaths, ASecretIsFoundInAnyWord) {
  const std::vector<std::string> words = {"train", "run.toml", "--set",
                                          "data.train=[\"s3://AKIA:SECRETX@corpus/x\"]"};
  const std::string problem = problem_of_secrets(words);
  EXPECT_HAS(problem, "s3://...@corpus/x: an address holds no credentials");
  EXPECT_EQ(problem.find("SECRETX"), std::string::npos) << problem;
  EXPECT_EQ(problem_of_secrets(std::span(words).first(3)), "");
}

}  // namespace
}  // namespace longhaul::apps
