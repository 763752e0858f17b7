#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <mutex>

#include "longhaul/device/device.h"
#include "longhaul/parallel/expert/dispatch.h"
#include "tests/accelerator/loaded.h"
#include "tests/accelerator/ranks.h"
#include "tests/support/scratch_directory.h"

// Tests when the host waits while rows go to the ranks of their experts, and that the
// device has work meanwhile.

namespace longhaul::softdev_test {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kOf = 6, kEach = 2, kTokens = 40, kFeatures = 37;

void label(const char* text) {
  reinterpret_cast<void (*)(const char*)>(device::plugin_function("softdev_label"))(text);
}

/// Returns the waits of the host that have this label, from a file of SOFTDEV_TRACE.
std::vector<nlohmann::json> waits_with(const std::string& label, const fs::path& trace) {
  std::vector<nlohmann::json> waits;
  std::ifstream file(trace);
  for (std::string line; std::getline(file, line);) {
    waits.push_back(nlohmann::json::parse(line));
    if (waits.back().at("label") != label) waits.pop_back();
  }
  return waits;
}

struct RowsOfARank {
  at::Tensor x, weights, chosen;
};

/// Sends rows to their experts and back. Returns what came to this rank's experts, and
/// what came back.
std::vector<at::Tensor> there_and_back(const parallel::TokenDispatch& dispatch,
                                       const nn::ExpertDispatch::CountsPtr& counts,
                                       const RowsOfARank& of) {
  const auto way =
      dispatch.send(counts, of.x, of.weights, ops::route(of.chosen, kOf), true);
  const auto got = dispatch.arrive(way);
  return {got.rows, got.weights, got.offsets, dispatch.back(way, got.rows)};
}

/// The second exchange with the same counts, as in a recomputation, waits for nothing.
TEST(ExpertsOnADevice, AreSortedAndGatheredWhileTheHostWaitsForCountsOnce) {
  device();
  const TestDirectory scratch;
  const fs::path trace = scratch / "trace";
  std::vector<RowsOfARank> rows(kRanks);
  for (RowsOfARank& of : rows) {
    of.x = at::randn({kTokens, kFeatures}).to(at::kBFloat16);
    of.weights = at::rand({kTokens * kEach});
    of.chosen = std::get<0>(
        at::sort(std::get<1>(at::topk(at::rand({kTokens, kOf}), kEach, -1)), -1));
  }
  ::setenv("SOFTDEV_TRACE", trace.c_str(), 1);
  std::mutex mutex;
  run_ranks(kRanks, [&](comm::DeviceCommunicator& group) {
    const at::NoGradGuard no_grad;
    const auto place = static_cast<size_t>(group.rank());
    const at::Device there = device(group.rank());
    const RowsOfARank mine{rows[place].x.to(there), rows[place].weights.to(there),
                           rows[place].chosen.to(there)};
    const parallel::TokenDispatch dispatch(
        group, [](const c10::Event& counts) { device::wait(counts, [] {}); });
    label("first");
    const auto counts = dispatch.announce(mine.chosen, kOf);
    const auto first = there_and_back(dispatch, counts, mine);
    label("again");
    const auto again = there_and_back(dispatch, counts, mine);
    label("");
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(at::equal(first[i].cpu(), again[i].cpu())) << i;
    }
    const ops::RoutedRows sorted = ops::route(rows[place].chosen, kOf);
    EXPECT_TRUE(
        at::equal(first.back().cpu(), rows[place].x.index_select(0, sorted.token)));
  });
  ::unsetenv("SOFTDEV_TRACE");
  const auto waits = waits_with("first", trace);
  ASSERT_EQ(waits.size(), kRanks);
  for (const nlohmann::json& wait : waits) {
    EXPECT_EQ(wait.at("at"), "event query");
    EXPECT_GE(wait.at("queued").get<int64_t>(), 8) << wait;
  }
  EXPECT_EQ(waits_with("again", trace).size(), 0U);
}

}  // namespace
}  // namespace longhaul::softdev_test
