#include "longhaul/format/refused_forms.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/format/hf_weights.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::format {
namespace {

TEST(OtherForms, AnAdapterAndGgufAreNamedWithWhatToTakeInstead) {
  const TestDirectory dir;
  fs::create_directory(dir / "adapter");
  fs::create_directory(dir / "gguf");
  write_file(dir / "adapter/adapter_config.json", "{}");
  write_file(dir / "gguf/model.Q4_K.gguf", "GGUF");
  EXPECT_HAS(other_form(dir / "adapter"), "with init.adapter or --adapter");
  EXPECT_HAS(other_form(dir / "gguf"), "take the safetensors");
  EXPECT_HAS(other_form(dir / "gguf/model.Q4_K.gguf"), "take the safetensors");
  EXPECT_EQ(other_form(dir.path()), "");
  EXPECT_EQ(other_form(dir / "absent"), "");
  EXPECT_HAS(message_of<InputError>([&] { HfWeights::open(dir / "gguf"); }),
             "gguf: GGUF files are for inference");
}

}  // namespace
}  // namespace longhaul::format
