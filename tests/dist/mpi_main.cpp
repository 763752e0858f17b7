#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "longhaul/comm/backend.h"

namespace {

/// Failures of this rank, as text, instead of output that interleaves with the others'.
class Collector : public testing::EmptyTestEventListener {
 public:
  std::string failures;

 private:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    failures += test == nullptr
                    ? "outside a test"
                    : std::string(test->test_suite_name()) + "." + test->name();
    failures += std::string(": ") +
                (result.file_name() == nullptr ? "" : result.file_name()) + ":" +
                std::to_string(result.line_number()) + "\n" + result.message() + "\n";
  }
};

/// Returns the count in --ranks=N, or -1.
int demanded_ranks(int argc, char** argv) {
  constexpr const char* kFlag = "--ranks=";
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], kFlag, std::strlen(kFlag)) == 0) {
      return std::stoi(argv[i] + std::strlen(kFlag));
    }
  }
  return -1;
}

}  // namespace

/// Runs the same tests on every rank. Rank 0 prints, and names the ranks that failed.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const auto world = longhaul::comm::world(longhaul::comm::Backend::Mpi);
  const int demanded = demanded_ranks(argc, argv);
  if (demanded != world->size()) {
    std::fprintf(stderr, "these tests want %d ranks (--ranks=N), but %d were started\n",
                 demanded, world->size());
    world->abort(1);
  }
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (world->rank() != 0) delete listeners.Release(listeners.default_result_printer());
  auto* collector = new Collector;  // owned by the listeners
  listeners.Append(collector);

  const int status = RUN_ALL_TESTS();
  const auto failures = world->gather_strings(collector->failures);
  const bool failed = world->any(status != 0);
  if (world->rank() == 0) {
    for (int r = 0; r < world->size(); ++r) {
      const std::string& text = failures[static_cast<size_t>(r)];
      if (!text.empty()) std::printf("FAILED on rank %d\n%s", r, text.c_str());
    }
    std::fflush(stdout);
  }
  longhaul::comm::finish(*world);
  return failed ? 1 : 0;
}
