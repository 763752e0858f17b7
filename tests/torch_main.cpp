#include <gtest/gtest.h>

#include "longhaul/tensor/vector_math.h"

/// Runs unit tests that compute with LibTorch.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  longhaul::tensor::warm_up_vector_math();
  return RUN_ALL_TESTS();
}
