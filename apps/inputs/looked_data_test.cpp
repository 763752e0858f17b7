#include "apps/inputs/looked_data.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "tests/support/memory_objects.h"

namespace longhaul::apps {
namespace {

RunConfig run_on(std::vector<fs::path> entries) {
  RunConfig config;
  config.data.train.resize(1);
  config.data.train[0].path.entries = std::move(entries);
  return config;
}

TEST(LookedData, HasTheSizesOfObjectsAndOfWhatLiesBelowAPrefix) {
  data::MemoryObjects store;
  store.put("wiki/store.json", std::string(30, 'x'));
  store.put("wiki/tokens_00000.bin", std::string(500, 'x'));
  store.put("wikipedia/tokens_00000.bin", std::string(7000, 'x'));
  store.put("ids.parquet", std::string(90, 'x'));
  RunConfig config = run_on({"s3://bucket/wiki", "s3://bucket/ids.parquet", "here",
                             "s3://bucket/more/*.parquet"});
  config.init.weights = "s3://bucket/weights";
  store.put("weights/model.safetensors", std::string(1000, 'x'));
  const LookedData looked = look_at_data(config, store);
  EXPECT_DOUBLE_EQ(looked.copied, 1530.0);
  EXPECT_DOUBLE_EQ(looked.packed, 90.0);
  EXPECT_EQ(looked.addresses.size(), 3U);
  EXPECT_TRUE(store.requests().empty());  // Nothing was read.
}

TEST(LookedData, OfAnAddressWithoutObjectsIsRefused) {
  data::MemoryObjects store;
  try {
    look_at_data(run_on({"s3://bucket/wiki"}), store);
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("s3://bucket/wiki: there is neither"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace longhaul::apps
