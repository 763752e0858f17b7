#include "longhaul/format/side_files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "tests/support/weights_files.h"

namespace longhaul::format {
namespace {

using testing::TempDir;
using testing::write_file;
using Names = std::vector<std::string>;

TEST(SideFiles, WhatGoesWithAModelIsListedAndTheRestIsNamedAsLeftBehind) {
  const TempDir dir;
  const Names side = {"COPYING",
                      "LICENSE.txt",
                      "NOTICE",
                      "README.md",
                      "THIRD_PARTY_NOTICES.txt",
                      "USE_POLICY.md",
                      "added_tokens.json",
                      "additional_chat_templates/rag.jinja",
                      "additional_chat_templates/tool_use.jinja",
                      "chat_template.jinja",
                      "chat_template.json",
                      "config.json",
                      "generation_config.json",
                      "license",
                      "merges.txt",
                      "preprocessor_config.json",
                      "processor_config.json",
                      "qwen.tiktoken",
                      "sentencepiece.bpe.model",
                      "special_tokens_map.json",
                      "spiece.model",
                      "tekken.json",
                      "tokenizer.json",
                      "tokenizer.model",
                      "tokenizer.model.v3",
                      "tokenizer_config.json",
                      "video_preprocessor_config.json",
                      "vocab.json",
                      "vocab.txt"};
  const Names others = {"additional_chat_templates/notes.txt", "license.py",
                        "modeling.py", "optimizer.pt", "runs/tokenizer.json"};
  for (const Names& names : {side, others}) {
    for (const std::string& name : names) write_file(dir / name, "{\"model\": {}}");
  }
  EXPECT_EQ(hf_side_files(dir.path()), side);
  EXPECT_EQ(files_left_behind(dir.path(), {"optimizer.pt"}),
            (Names{"additional_chat_templates/notes.txt", "license.py", "modeling.py",
                   "runs/"}));
  EXPECT_EQ(side_file_problems(dir.path()), Names());
}

TEST(SideFiles, ATokenizerIsKnownByItsVocabularyAndItsFilesByTheirNames) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "spiece.model",
                           "tekken.json", "vocab.json", "sentencepiece.bpe.model"}) {
    EXPECT_TRUE(has_tokenizer({"LICENSE", name})) << name;
    EXPECT_TRUE(is_tokenizer_side_file(name)) << name;
  }
  EXPECT_FALSE(has_tokenizer({"tokenizer_config.json", "chat_template.jinja", "a.json"}));
  EXPECT_TRUE(is_tokenizer_side_file("chat_template.json"));
  EXPECT_FALSE(is_tokenizer_side_file("config.json"));
}

TEST(SideFiles, LinksToNothingFoldersAndBrokenJsonAreNamedEach) {
  const TempDir dir;
  fs::create_symlink("../blobs/1f", dir / "tokenizer.json");
  fs::create_symlink("gone", dir / "LICENSE");
  write_file(dir / "tokenizer_config.json", "{\"a\": ");
  write_file(dir / "vocab.json", "");
  write_file(dir / "generation_config.json", "{\"a\": 1, \"a\": 2}");  // Python takes it
  fs::create_directory(dir / "added_tokens.json");
  fs::create_directory(dir / "licenses");
  write_file(dir / "modeling.py", "not JSON");
  const Names problems = side_file_problems(dir.path());
  ASSERT_EQ(problems.size(), 5U);
  EXPECT_EQ(problems[0],
            (dir / "LICENSE").string() + ": a link to gone, where nothing is");
  EXPECT_HAS(problems[1], "added_tokens.json: a folder, not a file");
  EXPECT_HAS(problems[2], "tokenizer.json: a link to ../blobs/1f, where nothing is");
  EXPECT_HAS(problems[3], "tokenizer_config.json: not valid JSON at byte 7");
  EXPECT_HAS(problems[4], "vocab.json: not valid JSON at byte 1");
  EXPECT_HAS(message_of<InputError>([&] { check_side_files(dir.path()); }),
             "where nothing is; ");
}

TEST(SideFiles, NumbersThatJsonHasNotAreNoDamage) {
  const TempDir dir;
  for (const char* odd : {"NaN", "[-Infinity, {\"x\": Infinity}]", "1e999", "-1e999",
                          "123456789012345678901234567890"}) {
    const std::string text = fmt::format("{{\"model\": {{}}, \"odd\": {}}}", odd);
    for (const char* name : {"generation_config.json", "tokenizer.json"}) {
      write_file(dir / name, text);
    }
    EXPECT_EQ(side_file_problems(dir.path()), Names()) << odd;
  }
  write_file(dir / "generation_config.json", "{\"odd\": NaN, \"b\": }");
  ASSERT_EQ(side_file_problems(dir.path()).size(), 1U);
  const std::string problem = side_file_problems(dir.path())[0];
  EXPECT_HAS(problem, "generation_config.json: not valid JSON at byte 19: ");
  EXPECT_EQ(problem.find("json.exception"), std::string::npos) << problem;
}

TEST(SideFiles, AJsonFileWithoutAModelIsNoTokenizer) {
  const TempDir dir;
  for (const char* text : {"{}", "[]", "{\"a\": {\"model\": 1}}"}) {
    write_file(dir / "tokenizer.json", text);
    ASSERT_EQ(side_file_problems(dir.path()).size(), 1U) << text;
    EXPECT_HAS(side_file_problems(dir.path())[0], "holds no tokenizer");
  }
}

}  // namespace
}  // namespace longhaul::format
