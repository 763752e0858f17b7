// LibTorch's libraries export copies of parts of the standard library. A copy in
// LibTorch's CUDA form crashes when code outside of LibTorch calls it, for example
// std::filesystem::remove_all.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <ATen/ops/ones.h>

#include <filesystem>
#include <string>

namespace longhaul::tensor {
namespace {

TEST(StandardLibrary, IsTheSystemsAndNotACopyOfLibTorchs) {
  ASSERT_EQ(at::ones({2}).numel(), 2);  // linked
  using RemoveAll = uintmax_t (*)(const std::filesystem::path&);
  const RemoveAll remove_all = &std::filesystem::remove_all;
  Dl_info found{};
  ASSERT_NE(::dladdr(reinterpret_cast<const void*>(remove_all), &found), 0);
  const std::string file = found.dli_fname;
  EXPECT_NE(file.find("libstdc++"), std::string::npos) << file;
}

}  // namespace
}  // namespace longhaul::tensor
