#include "longhaul/config/hardware_profile.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "longhaul/base/error.h"
#include "tests/support/settings.h"

namespace longhaul {
namespace {

HardwareProfile example() {
  HardwareProfile profile;
  profile.device = "cpu";
  profile.cpu = "Some CPU";
  profile.threads = 2;
  profile.made = "longhaul 0.1.0";
  profile.peak_bf16 = 1.25e12;
  profile.rates = {{"product bf16 2048x1024x1024", "FLOP", 1.2e12, 1.1e12, 1.25e12, 1.0},
                   {"copy", "B", 2e10, 1.9e10, 2.1e10, 1.0 / 60}};
  profile.exchanges = {{"tp", "all_gather", 8, 4, {3e9, 2e-5}}};
  return profile;
}

TEST(HardwareProfileFile, IsReadAsItWasWritten) {
  const HardwareProfile read = parse_hardware_profile(to_toml(example()), "machine.toml");
  EXPECT_EQ(read.device, "cpu");
  EXPECT_EQ(read.cpu, "Some CPU");
  EXPECT_EQ(read.threads, 2);
  EXPECT_EQ(read.peak_bf16, 1.25e12);
  EXPECT_EQ(read.peak_fp32, 0.0);
  ASSERT_EQ(read.rates.size(), 2U);
  ASSERT_NE(read.find("copy"), nullptr);
  EXPECT_EQ(read.find("copy")->to_first, 1.0 / 60);
  EXPECT_EQ(read.find("nothing"), nullptr);
  ASSERT_EQ(read.exchanges.size(), 1U);
  EXPECT_EQ(read.exchanges[0].group, "tp");
  EXPECT_EQ(read.exchanges[0].operation, "all_gather");
  EXPECT_EQ(read.exchanges[0].ranks, 8);
  EXPECT_EQ(read.exchanges[0].on_node, 4);
  EXPECT_EQ(read.exchanges[0].link.bytes_per_s, 3e9);
  EXPECT_EQ(read.exchanges[0].link.latency_s, 2e-5);
}

TEST(HardwareProfileFile, RefusesWhatIsNoneWithItsPlace) {
  const auto message = [](const std::string& text) {
    return message_of<ConfigError>([&] { parse_hardware_profile(text, "m.toml"); });
  };
  EXPECT_NE(message("[run]\nsteps = 3\n").find("no profile that longhaul bench wrote"),
            std::string::npos);
  const std::string head = "[machine]\ndevice = \"cpu\"\ncpu = \"x\"\nthreads = 2\n";
  EXPECT_NE(message(head + "[peak]\nbf16 = \"fast\"\n").find("m.toml:6:8"),
            std::string::npos);
  EXPECT_NE(message(head + "[[rate]]\nname = \"a\"\nunit = \"B\"\nmedian = -1.0\n")
                .find("rate.median"),
            std::string::npos);
  EXPECT_NE(message(head + "[[exchange]]\ngroup = \"tp\"\noperation = \"all_gather\"\n"
                           "ranks = 8\non_node = 8\nbytes_per_s = 0.0\n")
                .find("exchange.bytes_per_s"),
            std::string::npos);
  EXPECT_NE(message("rate = 3\n" + head).find("rate is an array of tables"),
            std::string::npos);
  EXPECT_NE(message(head + "[guess]\n").find("a profile has no 'guess'"),
            std::string::npos);
}

TEST(HardwareProfile, TakesNewerMeasurementsAndKeepsAllOthers) {
  HardwareProfile profile = example();
  profile.put_rates(
      {{"copy", "B", 3e10}, {"grouped product bf16 16 rows", "FLOP", 1e11}});
  std::vector<std::string> names;
  for (const MeasuredRate& rate : profile.rates) names.push_back(rate.name);
  EXPECT_EQ(names, (std::vector<std::string>{"product bf16 2048x1024x1024", "copy",
                                             grouped_product_name(/*bf16=*/true, 16)}));
  EXPECT_EQ(profile.find("copy")->median, 3e10);
  profile.put_rates({});
  EXPECT_EQ(profile.rates.size(), 3U);

  // The same operation over more ranks, or of another group, is another one.
  profile.put_exchanges({{"tp", "all_gather", 8, 4, {5e9, 1e-5}},
                         {"tp", "all_gather", 16, 4, {2e9, 1e-5}}});
  ASSERT_EQ(profile.exchanges.size(), 2U);
  EXPECT_EQ(profile.exchanges[0].link.bytes_per_s, 5e9);
  profile.put_exchanges({{"dp", "all_gather", 8, 4, {7e9, 1e-5}}});
  ASSERT_EQ(profile.exchanges.size(), 3U);
  EXPECT_EQ(profile.exchanges[0].group, "dp");
  EXPECT_EQ(profile.exchanges[1].link.bytes_per_s, 5e9);
  // A run on one rank has no exchanges.
  profile.put_exchanges({});
  EXPECT_EQ(profile.exchanges.size(), 3U);
}

TEST(HardwareProfileFile, OfAnotherMachineIsRefused) {
  const HardwareProfile profile = example();
  check_machine(profile, "m.toml", "cpu", "Some CPU", 2);
  const auto message = [&](const char* device, const char* cpu, int threads) {
    return message_of<ConfigError>(
        [&] { check_machine(profile, "m.toml", device, cpu, threads); });
  };
  EXPECT_NE(
      message("cpu", "Other CPU", 2)
          .find("m.toml was measured on a machine with processor Some CPU, this one "
                "has Other CPU; measure it here: longhaul bench --out m.toml"),
      std::string::npos);
  EXPECT_NE(message("cpu", "Some CPU", 4)
                .find("measure it here: OMP_NUM_THREADS=4 longhaul bench --out m.toml"),
            std::string::npos);
  EXPECT_NE(message("cpu", "Some CPU", 4).find("threads 2, this one has 4"),
            std::string::npos);
  EXPECT_NE(message("NVIDIA H100 sm_90", "Some CPU", 2).find("device cpu"),
            std::string::npos);
}

TEST(RateText, HasThreeDigitsAndItsUnit) {
  EXPECT_EQ(rate_text(1.2345e12, "FLOP"), "1.23 TFLOP/s");
  EXPECT_EQ(rate_text(999.9e9, "B"), "1 TB/s");
  EXPECT_EQ(rate_text(45'600.0, "token"), "45.6 ktoken/s");
  EXPECT_EQ(rate_text(12.0, "B"), "12 B/s");
}

}  // namespace
}  // namespace longhaul
