#include "apps/new_file.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::apps {
namespace {

TEST(NewFile, IsWrittenWithItsDirectoriesAndNothingBesideIt) {
  const TestDirectory dir;
  const fs::path path = dir.path() / "a/b/run.toml";
  write_new(path, "text", "new");
  EXPECT_EQ(read_text(path), "text");
  EXPECT_EQ(std::distance(fs::directory_iterator(path.parent_path()), {}), 1);
}

TEST(NewFile, NothingThatIsThereIsReplacedNotEvenALinkToNothing) {
  const TestDirectory dir;
  const fs::path mine = dir.path() / "mine";
  const fs::path mines_new = dir.path() / "other.new";
  const fs::path link = dir.path() / "link";
  write_text_durable(mine, "kept");
  write_text_durable(mines_new, "kept");
  fs::create_symlink(dir.path() / "target", link);
  for (const fs::path& path : {mine, link}) {
    EXPECT_HAS(message_of<InputError>([&] { write_new(path, "text", "new"); }),
               "[new] " + path.string() +
                   " is there already, and nothing is overwritten; remove it, or give "
                   "--out another name");
  }
  EXPECT_FALSE(fs::exists(dir.path() / "target"));
  write_new(dir.path() / "other", "text", "new");
  EXPECT_EQ(read_text(mine) + read_text(mines_new), "keptkept");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 4);
}

}  // namespace
}  // namespace longhaul::apps
