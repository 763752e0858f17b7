#include "longhaul/config/other_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <set>

#include "longhaul/base/file.h"
#include "longhaul/base/text.h"
#include "longhaul/config/fields.h"
#include "tests/support/settings.h"

namespace longhaul::config {
namespace {

constexpr OtherSystem kEverySystem[] = {
    OtherSystem::Common,     OtherSystem::NxdPipeline, OtherSystem::NxdZero,
    OtherSystem::Bert,       OtherSystem::Smp,         OtherSystem::Megatron,
    OtherSystem::Torchtitan, OtherSystem::Nanotron,    OtherSystem::Axolotl,
    OtherSystem::Environment};

TEST(OtherWords, NameKeysThatExistAndReasonsWhereThereIsNone) {
  RunConfig defaults;
  const std::vector<std::string> ours = all_names(sections_of(defaults));
  for (const OtherSystem system : kEverySystem) {
    std::set<std::string> seen;
    for (const OtherWord& word : words_of(system)) {
      SCOPED_TRACE(std::string(system_name(system)) + ": " + std::string(word.names));
      for (const std::string& name : split_words(word.names)) {
        EXPECT_TRUE(seen.insert(name).second);
        EXPECT_EQ(name, word_name(name));
      }
      for (const std::string& key : split_words(word.keys)) {
        EXPECT_NE(std::ranges::find(ours, key), ours.end()) << key;
      }
      EXPECT_TRUE(word.carry != Carry::None || (!word.note.empty() && word.keys.empty()));

      EXPECT_TRUE(word.carry != Carry::Copy || !word.keys.empty());
    }
  }
}

std::vector<std::string> codes(const std::string& text) {
  static const std::regex kCode("`([^`]+)`");
  std::vector<std::string> found;
  for (auto i = std::sregex_iterator(text.begin(), text.end(), kCode);
       i != std::sregex_iterator(); ++i) {
    found.push_back((*i)[1]);
  }
  return found;
}

/// The flags and the keys of each row of the tables below a heading of docs/migrating.md.
struct Row {
  std::vector<std::string> flags;
  std::set<std::string> keys;
  bool none = false;
  bool as_above = false;
};

std::vector<Row> rows_below(const std::string& heading) {
  RunConfig defaults;
  const std::vector<std::string> ours = all_names(sections_of(defaults));
  const std::string text = read_text(source_dir() / "docs/migrating.md");
  size_t at = text.find("\n" + heading + "\n");
  EXPECT_NE(at, std::string::npos) << heading;
  at += heading.size() + 2;
  const std::string part = text.substr(at, text.find("\n#", at) - at);
  std::vector<Row> rows;
  static const std::regex kRow("\\n\\| ([^|]+) \\| ([^\\n]+) \\|");
  for (auto i = std::sregex_iterator(part.begin(), part.end(), kRow);
       i != std::sregex_iterator(); ++i) {
    const std::string right = (*i)[2];
    static const std::regex kChoices("\\([^)]*\\)");
    const std::string left = std::regex_replace((*i)[1].str(), kChoices, "");
    Row row{codes(left), {}, right.starts_with("none"), right == "as above"};
    static const std::regex kKey("([a-z]+\\.[a-z_]+|\\[[a-z]+\\])");
    for (auto key = std::sregex_iterator(right.begin(), right.end(), kKey);
         key != std::sregex_iterator(); ++key) {
      const std::string name = (*key)[1];
      for (const std::string& one : ours) {
        const bool section =
            name[0] == '[' && one.starts_with(name.substr(1, name.size() - 2) + ".");
        if (one == name || section) row.keys.insert(one);
      }
    }
    if (!row.flags.empty()) rows.push_back(std::move(row));
  }
  return rows;
}

void compare(const std::string& heading, const std::vector<OtherSystem>& systems) {
  size_t compared = 0;
  for (const Row& row : rows_below(heading)) {
    for (const std::string& flag : row.flags) {
      if (flag.find_first_of(" .") != std::string::npos) continue;  // scripts and choices
      if (!std::all_of(flag.begin(), flag.end(), [](char c) {
            return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ||
                   c == '*';
          })) {
        continue;
      }
      SCOPED_TRACE(fmt::format("{}: {}", heading, flag));
      const OtherWord* word = nullptr;
      for (const OtherSystem system : systems) {
        if (word == nullptr) word = find_word(system, word_name(flag));
      }

      ASSERT_NE(word, nullptr);
      ++compared;
      if (row.as_above) continue;
      if (row.none || row.keys.empty()) {
        EXPECT_TRUE(word->keys.empty()) << word->keys;
        continue;
      }
      const std::vector<std::string> keys = split_words(word->keys);
      EXPECT_FALSE(keys.empty());
      for (const std::string& key : keys) EXPECT_TRUE(row.keys.contains(key)) << key;
    }
  }
  EXPECT_GT(compared, 5U);
}

TEST(OtherWords, AreThoseOfTheTablesForMigrating) {
  compare("## A and B: `run_llama_nxd.py`",
          {OtherSystem::NxdPipeline, OtherSystem::NxdZero});
  compare("### Environment of A, B and C", {OtherSystem::Environment});
  compare("## C: arcee-trainium-recipes", {OtherSystem::NxdZero});
  compare("## D: BERT-large", {OtherSystem::Bert});
  compare("## E: SageMaker Model Parallel v2",
          {OtherSystem::Smp, OtherSystem::Environment});
}

TEST(OtherWords, AnswerAMistypedKeyOfAFile) {
  EXPECT_EQ(refused("learning_rate = 1e-4\n"),
            "[config] run.toml:13:1: unknown key optimizer.learning_rate; did you mean "
            "optimizer.lr?");
  EXPECT_EQ(refused("max_grad_norm = 1.0\n"),
            "[config] run.toml:13:1: unknown key optimizer.max_grad_norm; did you mean "
            "optimizer.clip?");
  EXPECT_EQ(
      refused("[parallel]\ntensor_model_parallel_size = 2\n"),
      "[config] run.toml:14:1: unknown key parallel.tensor_model_parallel_size; did you "
      "mean parallel.tp?");
  EXPECT_EQ(
      refused("use_flash_attention = 1\n"),
      "[config] run.toml:13:1: unknown key optimizer.use_flash_attention; other trainers "
      "have it, and no key takes its place: no form of attention holds s x s");
  EXPECT_EQ(
      refused("grad_accum_usteps = 1\n"),
      "[config] run.toml:13:1: unknown key optimizer.grad_accum_usteps; did you mean "
      "batch.global_size or batch.micro_size?");
}

TEST(OtherWords, AnswerAMistypedSetting) {
  const auto set = [](const std::string& text) { return refused("", {text}); };
  EXPECT_EQ(set("optimizer.learning_rate=1"),
            "[config] --set optimizer.learning_rate=1: unknown key "
            "optimizer.learning_rate; did "
            "you mean optimizer.lr?");
  EXPECT_EQ(set("train_iters=5"),
            "[config] --set train_iters=5: \"train_iters\" is not a key; expected "
            "section.key=value; did you mean run.steps?");
  EXPECT_EQ(
      set("optimizer.learning_rate="),
      "[config] --set optimizer.learning_rate=: unknown key optimizer.learning_rate; did "
      "you mean optimizer.lr?");
}

}  // namespace
}  // namespace longhaul::config
