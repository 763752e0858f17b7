#include "longhaul/cuda/kernels/gpu.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"

namespace longhaul::kernels::cuda {
namespace {

constexpr const char* kImages = "sm_80 sm_90a sm_100";

std::string refusal(const Gpu& gpu, std::string_view images = kImages) {
  try {
    check_gpu(gpu, images);
  } catch (const ConfigError& error) {
    return error.message();
  }
  return "";
}

TEST(Gpu, RunsImagesOfItsOwnGenerationThatAreNotLater) {
  EXPECT_TRUE(image_serves("sm_80", 8, 0));
  EXPECT_TRUE(image_serves("sm_80", 8, 9));
  EXPECT_FALSE(image_serves("sm_86", 8, 0));
  EXPECT_FALSE(image_serves("sm_80", 9, 0));
  EXPECT_FALSE(image_serves("sm_80", 7, 5));
  EXPECT_TRUE(image_serves("sm_90a", 9, 0));
  EXPECT_FALSE(image_serves("sm_100a", 10, 3));
  EXPECT_TRUE(image_serves("sm_100", 10, 3));
  EXPECT_TRUE(image_serves("sm_100f", 10, 3));
  EXPECT_FALSE(image_serves("sm_100", 12, 0));
  EXPECT_TRUE(image_serves("sm_120", 12, 1));
  for (const char* text : {"", "sm_", "compute_80", "sm_80x", "80"}) {
    EXPECT_FALSE(image_serves(text, 8, 0)) << text;
  }
}

TEST(Gpu, IsRefusedBeforeTheFirstKernelWhereNoImageServesIt) {
  EXPECT_EQ(refusal({"H100", 9, 0, 13000, 13000}), "");
  EXPECT_EQ(refusal({"A10", 8, 6, 13010, 13000}), "");
  EXPECT_EQ(refusal({"RTX 5090", 12, 0, 13000, 13000}),
            "RTX 5090 is an sm_120, but this program has kernels for sm_80 sm_90a "
            "sm_100; build the program with -DLONGHAUL_CUDA_ARCH=sm_120, or run it on a "
            "GPU that it has kernels for");
  EXPECT_NE(refusal({"H100", 9, 0, 13000, 13000}, "sm_80"), "");
  EXPECT_NE(refusal({"H100", 9, 0, 13000, 13000}, ""), "");
  EXPECT_EQ(refusal({"cuda:3", 0, 0, 13000, 13000}),
            "cuda:3 does not report its compute capability; 'nvidia-smi' shows whether "
            "the GPU answers");
}

TEST(Gpu, IsRefusedWithADriverOfAnOlderCuda) {
  EXPECT_EQ(refusal({"H100", 9, 0, 12080, 13000}),
            "the driver of H100 supports CUDA 12.8, but this program needs 13.0; install "
            "a newer driver ('nvidia-smi' shows which CUDA a driver supports)");
  EXPECT_EQ(refusal({"H100", 9, 0, 13000, 13020}), "") << "a minor version is no reason";
  EXPECT_EQ(refusal({"H100", 9, 0, 14000, 13000}), "");
}

}  // namespace
}  // namespace longhaul::kernels::cuda
