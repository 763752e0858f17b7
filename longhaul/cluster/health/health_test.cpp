#include "longhaul/cluster/health/health.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "longhaul/base/process.h"
#include "longhaul/cluster/health/gpu_health.h"
#include "longhaul/cluster/health/health_compute.h"
#include "longhaul/cluster/health/health_storage.h"
#include "longhaul/system/cpus.h"
#include "longhaul/system/stopwatch.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

constexpr const char* kFakeNvml = "./libfake_nvml.so";  // in the build's folder

HealthOptions quick(const TestDirectory& dir) {
  HealthOptions options;
  options.quick = true;
  options.directories = {dir.path()};
  options.unhealthy_file = dir / "mark";
  options.nvml_library = "libno-such-nvml.so";
  return options;
}

const HealthCheck& find(const HealthReport& report, const std::string& name) {
  for (const HealthCheck& check : report.checks) {
    if (check.name.starts_with(name)) return check;
  }
  throw std::runtime_error("no check " + name);
}

TEST(Health, FindsNothingOnAFitNodeWithinASecond) {
  const TestDirectory dir;
  const system::Stopwatch watch;
  const HealthReport report = check_node(quick(dir));
  EXPECT_TRUE(report.ok()) << report.cause();
  EXPECT_EQ(report.node, host_name());
  EXPECT_NEAR(report.time, unix_time(), 5.0);
  EXPECT_EQ(report.checks.size(), 6U);
  EXPECT_EQ(find(report, "gpu").result, HealthResult::Skipped);
  EXPECT_EQ(find(report, "gpu").text, "not present");
  EXPECT_GT(find(report, "compute").values.at("products").get<int>(), 0);
  EXPECT_TRUE(fs::is_empty(dir.path())) << "something was left behind";
  // The check takes a second on an idle machine. Other tests run beside this one.
  EXPECT_LT(watch.seconds(), 4.0);
}

TEST(Health, GoesThroughJsonWithoutLoss) {
  const TestDirectory dir;
  HealthOptions options = quick(dir);
  options.directories = {"/no/such/dir"};
  const HealthReport report = check_node(options);
  EXPECT_FALSE(report.ok());
  const Json json = report.to_json();
  EXPECT_EQ(json.at("ok"), false);
  const HealthReport again = HealthReport::from_json(parse_json(json.dump(), "test"));
  EXPECT_EQ(again.to_json(), json);
  EXPECT_EQ(again.cause(),
            "disk /no/such/dir: No such file or directory; mount the directory on this "
            "node, or make it");
  EXPECT_EQ(again.lines().size(), report.checks.size());
  EXPECT_HAS(again.lines().at(4), "FAILED   disk /no/such/dir");
  for (const char* wrong :
       {"{}", "[]", R"({"node":"n","time":1,"checks":[{"name":"a"}]})",
        R"({"node":1,"time":1,"checks":[]})",
        R"({"node":"n","time":1,"checks":[{"name":"a","result":"fine",
                               "text":"","seconds":1,"values":{}}]})"}) {
    EXPECT_THROW(HealthReport::from_json(parse_json(wrong, "test")), InputError) << wrong;
  }
}

TEST(Health, NamesTheCoreThatComputesWrong) {
  const int bad = system::allowed_cpus().back();
  const HealthCheck check =
      check_compute(0.02, [&](int core, std::span<std::byte> result) {
        if (core == bad) result[1000] ^= std::byte{1};
      });
  EXPECT_EQ(check.result, HealthResult::Failed);
  EXPECT_HAS(check.text,
             "core " + std::to_string(bad) + " computed fp64 product 1 wrong");
  for (const int core : system::allowed_cpus()) {
    if (core == bad) continue;
    EXPECT_EQ(check.text.find("core " + std::to_string(core) + " "), std::string::npos);
  }
}

TEST(Health, NoticesOneBitOfMemoryInEachPattern) {
  EXPECT_EQ(check_memory(0.05, uint64_t{32} << 20).result, HealthResult::Ok);
  for (const int bad : {0, 1, 2}) {
    const HealthCheck check = check_memory(0.05, uint64_t{32} << 20,
                                           [&](int pass, std::span<std::byte> memory) {
                                             if (pass == bad)
                                               memory[memory.size() - 3] ^= std::byte{16};
                                           });
    EXPECT_EQ(check.result, HealthResult::Failed) << bad;
    EXPECT_HAS(check.text, "a word held 0x");
  }
}

TEST(Health, ReadsBackWhatItWroteAndTellsAFullDisk) {
  const TestDirectory dir;
  const HealthCheck check = check_directory(dir.path(), 1 << 20, 0.0);
  EXPECT_EQ(check.result, HealthResult::Ok) << check.text;
  EXPECT_GT(check.values.at("write_mb_per_s").get<double>(), 0.0);
  EXPECT_TRUE(fs::is_empty(dir.path()));
  const HealthCheck full = check_directory(dir.path(), 1 << 20, 1e18);
  EXPECT_EQ(full.result, HealthResult::Failed);
  EXPECT_HAS(full.text, "1000.0 PB are needed");
}

TEST(Health, TellsADirectoryThatCannotBeWrittenTo) {
  const HealthCheck check =
      bounded_check("disk", 5.0, [] { return check_directory("/proc", 1 << 20, 0.0); });
  EXPECT_EQ(check.result, HealthResult::Failed);
  EXPECT_HAS(check.text, "/proc");
}

TEST(Health, HonoursTheMarkThatANodeIsUnfit) {
  const TestDirectory dir;
  const HealthOptions options = quick(dir);
  const auto mark = [&] { return find(check_node(options), "mark"); };
  EXPECT_EQ(mark().result, HealthResult::Ok);
  write_file(options.unhealthy_file, "0\n");
  EXPECT_EQ(mark().result, HealthResult::Ok) << "HyperPod's file may say 0";
  for (const char* text : {"", "0\n1\n", "1", "disk sounds odd\n"}) {
    write_file(options.unhealthy_file, text);
    EXPECT_EQ(mark().result, HealthResult::Failed) << text;
  }
  EXPECT_HAS(mark().text, "disk sounds odd");
}

TEST(Health, RunsThePluggedInCommandWithADeadline) {
  const TestDirectory dir;
  HealthOptions options = quick(dir);
  const auto result = [&](const char* command) {
    options.command = command;
    return find(check_node(options), "command");
  };
  EXPECT_EQ(result("echo looked; exit 0").text, "looked");
  const HealthCheck failed = result("echo one; echo two; echo three >&2; exit 3");
  EXPECT_EQ(failed.result, HealthResult::Failed);
  EXPECT_HAS(failed.text, "ended with 3: three");
  options.command_seconds = 0.2;
  const system::Stopwatch watch;
  EXPECT_HAS(result("sleep 20").text, "did not end within 0.2 s");
  EXPECT_LT(watch.seconds(), 5.0);
}

TEST(Health, ACheckThatHangsOrDiesOrThrowsHasFailed) {
  const system::Stopwatch watch;
  EXPECT_HAS(bounded_check("disk", 0.1,
                           [] {
                             ::sleep(30);
                             return HealthCheck{};
                           })
                 .text,
             "no answer within 0.1 s");
  EXPECT_LT(watch.seconds(), 3.0);
  const HealthCheck dead = bounded_check("gpu", 5.0, []() -> HealthCheck {
    ::raise(SIGKILL);
    return {};
  });
  EXPECT_EQ(dead.result, HealthResult::Failed);
  EXPECT_HAS(dead.text, "died of signal 9");
  const HealthCheck thrown = bounded_check(
      "disk", 5.0, []() -> HealthCheck { throw InputError("disk", "as it is"); });
  EXPECT_EQ(thrown.result, HealthResult::Failed);
  EXPECT_EQ(thrown.text, "[disk] as it is");
}

class FakeGpus : public ::testing::Test {
 protected:
  ~FakeGpus() override { ::unsetenv("FAKE_NVML"); }
  static HealthCheck check(const char* says) {
    ::setenv("FAKE_NVML", says, 1);
    return bounded_check("gpu", 5.0, [] { return check_gpus(kFakeNvml); });
  }
};

TEST_F(FakeGpus, AreReadAndFoundFit) {
  ::setenv("FAKE_NVML", "", 1);
  std::string why;
  const auto gpus = read_gpus(kFakeNvml, why);
  ASSERT_TRUE(gpus) << why;
  ASSERT_EQ(gpus->size(), 2U);
  EXPECT_EQ(gpus->at(0).name, "Fake H100");
  EXPECT_EQ(gpus->at(0).memory_used_bytes, 1000000000U);
  EXPECT_EQ(gpus->at(1).busy, 0.25);
  EXPECT_EQ(gpus->at(1).uncorrected_errors, 0U);
  EXPECT_EQ(gpus->at(1).celsius, std::nullopt) << "the fake has no such function";
  EXPECT_EQ(judge_gpus(*gpus, {}).result, HealthResult::Ok);
}

TEST_F(FakeGpus, WithFaultsAreNamed) {
  EXPECT_HAS(check("ecc errors").text, "GPU 0 (Fake H100) has 3 uncorrected ECC errors");
  EXPECT_HAS(check("pending").text, "must be reset");
  EXPECT_HAS(check("lost").text, "GPU 1 (unreachable) does not answer");
  EXPECT_EQ(check("lost").result, HealthResult::Failed);
  EXPECT_EQ(check("no ecc").result, HealthResult::Ok) << "a GPU without ECC is no fault";
  const HealthCheck silent = check("no driver");
  EXPECT_EQ(silent.result, HealthResult::Skipped);
  EXPECT_HAS(silent.text, "no driver answers");
  EXPECT_HAS(check("crash").text, "died of signal 6");
  EXPECT_EQ(check("many").values.at("devices").size(), 64U) << "a lie about the count";
}

TEST(Xid, LinesOfTheKernelsLogAreRead) {
  const std::string log =
      "6,100,5,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n"
      "6,101,6,-;usb 1-1: new device\n"
      "6,102,7,-;NVRM: Xid (PCI:0000:5e:00): 13, pid=77, Graphics Exception\n"
      "6,103,8,-;NVRM: Xid (PCI:0000";
  const auto xids = find_xids(log);
  ASSERT_EQ(xids.size(), 2U);
  EXPECT_EQ(xids[0].number, 79);
  EXPECT_EQ(xids[1].number, 13);
  const HealthCheck check = judge_gpus({GpuState{}}, xids);
  EXPECT_EQ(check.result, HealthResult::Failed);
  EXPECT_HAS(check.text, "fallen off the bus");
  EXPECT_EQ(check.text.find("Graphics Exception"), std::string::npos)
      << "a program's own fault";
}

}  // namespace
}  // namespace longhaul::cluster
