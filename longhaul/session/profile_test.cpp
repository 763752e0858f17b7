#include "longhaul/session/profile.h"

#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace longhaul::session {
namespace {

void pass(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

Json operation(const run::ProfileEvent& event, const std::string& name) {
  const auto found = std::ranges::find_if(
      event.operations, [&](const Json& row) { return row["name"] == name; });
  return found == event.operations.end() ? Json() : *found;
}

double seconds(const run::ProfileEvent& event, const std::string& name) {
  return operation(event, name).at("seconds").get<double>();
}

class ProfileOfAStep : public ::testing::Test {
 protected:
  comm::Ledger ledger_;
  Profile profile_{at::kCPU, 3, ledger_};
};

TEST_F(ProfileOfAStep, AnOperationHasItsTimeWithoutThatOfWhatItCalls) {
  profile_.begin();
  profile_.part("gradients");
  for (int i = 0; i < 2; ++i) {
    RECORD_FUNCTION("outer", {});
    pass(2);
    {
      RECORD_FUNCTION("inner", {});
      pass(20);
    }
  }
  profile_.part("update");
  pass(10);
  const Profile::Result result = profile_.end();
  const run::ProfileEvent& event = result.event;
  EXPECT_EQ(operation(event, "outer")["calls"], 2);
  EXPECT_EQ(operation(event, "inner")["calls"], 2);
  EXPECT_GE(seconds(event, "inner"), 0.040);
  EXPECT_GE(seconds(event, "outer"), 0.004);
  EXPECT_LT(seconds(event, "outer"), seconds(event, "inner"));
  EXPECT_EQ(event.operations[0]["name"], "inner");
  ASSERT_EQ(event.parts.size(), 2U);
  EXPECT_EQ(event.parts[0]["name"], "gradients");
  EXPECT_GE(event.parts[1]["seconds"].get<double>(), 0.010);
  double told = 0.0;
  for (const Json& part : event.parts) told += part["seconds"].get<double>();
  EXPECT_LE(told, event.seconds);
  EXPECT_GE(event.seconds, 0.054);
  EXPECT_EQ(event.clock, "host");
}

TEST_F(ProfileOfAStep, AWaitForOtherRanksIsARowAndNotItsCallersTime) {
  profile_.begin();
  {
    RECORD_FUNCTION("caller", {});
    const auto since = comm::Ledger::Clock::now();
    pass(20);
    ledger_.waited_for({"dp", "all_reduce", 7, 4096, "bucket 3"}, since);
  }
  const run::ProfileEvent event = profile_.end().event;
  EXPECT_GE(seconds(event, "wait: all_reduce on 'dp'"), 0.020);
  EXPECT_LT(seconds(event, "caller"), 0.010);
}

TEST_F(ProfileOfAStep, OperationsOfLibTorchAreInItAndItsTimeline) {
  profile_.begin();
  profile_.block("layer 2", true);
  const at::Tensor sum = at::add(at::ones({4}), at::ones({4}));
  profile_.block("layer 2", false);
  const Profile::Result result = profile_.end();
  EXPECT_EQ(operation(result.event, "aten::add")["calls"], 1);
  EXPECT_EQ(operation(result.event, "aten::ones")["calls"], 2);
  const Json timeline = Json::parse("[" + result.timeline + "]");
  const auto has = [&](const char* name, int lane) {
    return std::ranges::any_of(timeline, [&](const Json& e) {
      return e["name"] == name && e["tid"] == lane && e["pid"] == 3;
    });
  };
  EXPECT_TRUE(has("aten::add", static_cast<int>(parallel::Trace::Lane::Operation)));
  EXPECT_TRUE(has("layer 2", static_cast<int>(parallel::Trace::Lane::Block)));
}

TEST_F(ProfileOfAStep, ProductsAreToldBySizeWithTheirOperations) {
  profile_.begin();
  const at::Tensor a = at::ones({6, 5});
  for (int i = 0; i < 2; ++i) at::mm(a, at::ones({5, 7}));
  at::addmm(at::ones({7}), a, at::ones({5, 7}));
  at::bmm(at::ones({3, 6, 5}), at::ones({3, 5, 7}));
  at::add(a, a);
  const run::ProfileEvent event = profile_.end().event;
  ASSERT_EQ(event.products.size(), 3U);
  const auto product = [&](const std::string& name) {
    return *std::ranges::find_if(event.products,
                                 [&](const Json& row) { return row["name"] == name; });
  };
  EXPECT_EQ(product("aten::mm")["shape"], "6 x 5 x 7");
  EXPECT_EQ(product("aten::mm")["calls"], 2);
  EXPECT_EQ(product("aten::mm")["flops"], 2 * 2 * 6 * 5 * 7);
  EXPECT_GT(product("aten::mm")["seconds"].get<double>(), 0.0);
  EXPECT_EQ(product("aten::addmm")["shape"], "6 x 5 x 7");
  EXPECT_EQ(product("aten::bmm")["shape"], "3 of 6 x 5 x 7");
  EXPECT_EQ(product("aten::bmm")["flops"], 2 * 3 * 6 * 5 * 7);
}

TEST_F(ProfileOfAStep, NothingIsRecordedBesideIt) {
  EXPECT_EQ(profile_.trace(), nullptr);
  profile_.part("batch");
  EXPECT_FALSE(profile_.active());
  EXPECT_FALSE(at::hasThreadLocalCallbacks());
  profile_.begin();
  EXPECT_TRUE(at::hasThreadLocalCallbacks());
  profile_.end();
  EXPECT_FALSE(at::hasThreadLocalCallbacks());
  ledger_.waited_for({"dp", "all_reduce", 7, 4096, ""}, comm::Ledger::Clock::now());
}

}  // namespace
}  // namespace longhaul::session
