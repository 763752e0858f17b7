#include "apps/pages/pages.h"

#include <gtest/gtest.h>

#include <string>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::apps {
namespace {

class PagesTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(docs_);
    write_file(docs_ / "README.md", "the list");
    write_file(docs_ / "data.md", "# Data\n\nx\n\n## Some text\n\ny\n\n## More\n");
    write_file(docs_ / "devices.md", "# Devices\n");
    write_file(dir_.path() / "README.md", "the project");
  }

  std::string problem_of(const std::string& wanted) const {
    return message_of<InputError>([&] { read_page(docs_, wanted); });
  }

  TestDirectory dir_;
  fs::path docs_ = dir_.path() / "docs";
};

TEST_F(PagesTest, AreFoundByWhatMessagesAndLinksCallThem) {
  const std::string data = read_text(docs_ / "data.md");
  for (const char* name : {"data", "data.md", "docs/data.md", "./docs/data.md", "Data"}) {
    EXPECT_EQ(read_page(docs_, name), data) << name;
  }
  EXPECT_EQ(read_page(docs_, ""), "the list");
  EXPECT_EQ(read_page(docs_, "docs/README.md"), "the list");
  EXPECT_EQ(read_page(docs_, "readme"), "the project");
}

TEST_F(PagesTest, HaveSections) {
  EXPECT_EQ(read_page(docs_, "docs/data.md#some-text"), "## Some text\n\ny\n\n");
  EXPECT_EQ(read_page(docs_, "data#More"), "## More\n");
}

TEST_F(PagesTest, OfOtherFoldersAreNotThere) {
  EXPECT_EQ(read_page(docs_, "../README.md"), "the project");
  for (const char* name : {"../deploy/README.md", "/etc/data.md", "deploy/data"}) {
    EXPECT_NE(problem_of(name).find("there is no page"), std::string::npos) << name;
  }
}

TEST_F(PagesTest, ThatAreNotThereLeadToTheNearest) {
  EXPECT_EQ(problem_of("dtaa"),
            "[docs] there is no page \"dtaa\"; did you mean `longhaul docs data`?");
  write_file(docs_ / "migrating.md", "# Migrating\n\nLoRA, LoRA\n");
  write_file(docs_ / "data.md", read_text(docs_ / "data.md") + "No LoRA.\n");
  EXPECT_EQ(
      problem_of("lora"),
      "[docs] there is no page \"lora\"; these pages have the word: migrating, data");
  fs::remove(docs_ / "migrating.md");
  EXPECT_EQ(problem_of("zzzzzzzzzz"),
            "[docs] there is no page \"zzzzzzzzzz\"; there are data, devices, readme");
  EXPECT_EQ(
      problem_of("data#some-txt"),
      "[docs] the page \"data\" has no section \"some-txt\"; did you mean `longhaul "
      "docs data#some-text`?");
  EXPECT_EQ(problem_of("data#zzzzzzzzzzzz"),
            "[docs] the page \"data\" has no section \"zzzzzzzzzzzz\"; there are data, "
            "some-text, more");
}

}  // namespace
}  // namespace longhaul::apps
