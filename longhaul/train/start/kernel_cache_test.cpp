#include "longhaul/train/start/kernel_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"

namespace longhaul::train {
namespace {

TEST(KernelCache, OnlyKernelsThatAreAbsentAreCopied) {
  std::string name = fs::temp_directory_path() / "kernels_XXXXXX";
  const fs::path root = ::mkdtemp(name.data());
  const auto write = [&](const fs::path& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    write_text_atomic(root / path, text);
  };
  write("from/ab/cd/abcd.neff", "new");
  write("from/ab/ef/abef.neff", "other");
  write("from/ab/cd/abcd.lock", "");
  write("to/ab/ef/abef.neff", "own");
  EXPECT_EQ(copy_kernels(root / "from", root / "to"), 1);
  EXPECT_EQ(read_text(root / "to/ab/cd/abcd.neff"), "new");
  EXPECT_EQ(read_text(root / "to/ab/ef/abef.neff"), "own");
  EXPECT_EQ(std::distance(fs::directory_iterator(root / "to/ab/cd"), {}), 1);
  EXPECT_EQ(copy_kernels(root / "from", root / "to"), 0);
  EXPECT_THROW(copy_kernels(root / "absent", root / "to"), InputError);
  EXPECT_THROW(copy_kernels(root / "from", "/proc/kernels"), InputError);
  fs::remove_all(root);
}

}  // namespace
}  // namespace longhaul::train
