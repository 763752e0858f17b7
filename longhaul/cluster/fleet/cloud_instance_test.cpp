#include "longhaul/cluster/fleet/cloud_instance.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "longhaul/cluster/control/socket.h"
#include "longhaul/system/stopwatch.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

using Texts = std::map<std::string, std::string>;

/// Returns what these files of a firmware tell.
std::string told_by(const Texts& files) {
  const TestDirectory dir;
  for (const auto& [name, text] : files) write_file(dir / name, text + "\n");
  const auto instance = read_firmware(dir.path());
  return instance ? instance->to_text() : "none";
}

/// Stands in for the metadata service on loopback: answers each request by its path. An
/// empty answer keeps the asker waiting.
class Service {
 public:
  explicit Service(Texts answers)
      : answers_(std::move(answers)),
        thread_([this](const auto& stop) { serve(stop); }) {}
  std::string url() const {
    return fmt::format("http://{}/", bound_address(door_.get()).to_text());
  }
  std::vector<std::string> end() {
    thread_.request_stop();
    thread_.join();
    return asked_;
  }

 private:
  void serve(const std::stop_token& stop) {
    std::vector<Descriptor> waiting;
    while (!stop.stop_requested()) {
      pollfd one{door_.get(), POLLIN, 0};
      if (::poll(&one, 1, 20) <= 0) continue;
      Descriptor guest(::accept(door_.get(), nullptr, nullptr));
      std::array<std::byte, 4096> bytes{};
      size_t count = 0;
      std::string why;
      std::string text;
      while (text.find("\r\n\r\n") == std::string::npos &&
             read_some(guest.get(), bytes, count, why) == IoResult::Done) {
        text.append(reinterpret_cast<const char*>(bytes.data()), count);
      }
      asked_.push_back(text);
      const std::string answer = answers_[text.substr(0, text.find(" HTTP"))];
      write_some(guest.get(), answer, count, why);
      if (answer.empty()) waiting.push_back(std::move(guest));
    }
  }

  Texts answers_;
  Descriptor door_ = listen_at(resolve("127.0.0.1", 0).at(0));
  std::vector<std::string> asked_;
  std::jthread thread_;  // the last member, because it uses the others
};

std::string answer(const std::string& body) {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(),
                     body);
}

const Texts kAnswers = {
    {"PUT /latest/api/token", answer("AQAEALH-token==")},
    {"GET /latest/meta-data/instance-id", answer("i-0123456789abcdef0")},
    {"GET /latest/meta-data/instance-type", answer("p3.16xlarge")},
    {"GET /latest/meta-data/placement/availability-zone", answer("us-east-1a")}};

/// Returns what is known of an EC2 instance after the service was asked.
std::string asked(const Texts& variables, CloudInstance instance = {.cloud = "EC2"}) {
  ask_metadata(instance, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
  return instance.to_text();
}

Texts at(const Service& service) {
  return {{"AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url()}};
}

TEST(CloudInstances, TheFirmwareTellsTheCloudAndOnEc2IdAndType) {
  EXPECT_EQ(told_by({{"sys_vendor", "Amazon EC2"},
                     {"board_asset_tag", "i-0abc"},
                     {"product_name", "p5.48xlarge"}}),
            "EC2 i-0abc, p5.48xlarge");
  EXPECT_EQ(told_by({{"bios_version", "4.11.amazon"}, {"product_name", "HVM domU"}}),
            "EC2");
  EXPECT_EQ(told_by({{"product_name", "Google Compute Engine"}}),
            "Google Compute Engine");
  EXPECT_EQ(told_by({{"chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77"}}),
            "Azure");
  EXPECT_EQ(told_by({{"sys_vendor", "Dell Inc."}, {"product_name", "R7525"}}), "none");
  EXPECT_FALSE(read_firmware("/nowhere"));
}

TEST(CloudInstances, AFirmwareThatWritesOtherThingsPutsNothingIntoTheLine) {
  EXPECT_EQ(told_by({{"sys_vendor", "Amazon EC2"},
                     {"board_asset_tag", "i-0\x1b[31mabc"},
                     {"product_name", std::string(200, 'a')}}),
            "EC2");
  EXPECT_EQ(told_by({{"sys_vendor", "Amazon EC2"},
                     {"board_asset_tag", "i-0abc"},
                     {"product_name", "p5\nrank 3 was killed"}}),
            "EC2 i-0abc");
}

TEST(CloudInstances, TheServiceIsAskedWithATokenForWhatTheFirmwareDoesNotTell) {
  Service service(kAnswers);
  EXPECT_EQ(asked(at(service)), "EC2 i-0123456789abcdef0, p3.16xlarge, us-east-1a");
  EXPECT_EQ(asked(at(service), {"EC2", "i-0abc", "p5.48xlarge", ""}),
            "EC2 i-0abc, p5.48xlarge, us-east-1a");
  const auto requests = service.end();
  ASSERT_EQ(requests.size(), 6U);
  EXPECT_NE(requests[0].find("\r\nX-aws-ec2-metadata-token-ttl-seconds: "),
            std::string::npos);
  EXPECT_NE(requests[1].find("\r\nX-aws-ec2-metadata-token: AQAEALH-token==\r\n"),
            std::string::npos);
  EXPECT_EQ(requests[5].find("GET /latest/meta-data/placement/availability-zone"), 0U);
}

TEST(CloudInstances, NothingIsAskedWhereThatIsForbiddenOrAllIsKnown) {
  Service service(kAnswers);
  Texts variables = at(service);
  EXPECT_EQ(asked(variables, {"EC2", "i-0", "t", "z"}), "EC2 i-0, t, z");
  EXPECT_EQ(asked(variables, {.cloud = "Azure"}), "Azure");
  variables["AWS_EC2_METADATA_DISABLED"] = "True";
  EXPECT_EQ(asked(variables), "EC2");
  EXPECT_TRUE(service.end().empty());
  for (const char* url : {"https://127.0.0.1", "http://127.0.0.1:99999", "http://[::1",
                          "http://", "file:///etc/passwd", "http://127.0.0.1:1/"}) {
    EXPECT_EQ(asked({{"AWS_EC2_METADATA_SERVICE_ENDPOINT", url}}), "EC2") << url;
  }
}

TEST(CloudInstances, AnswersOfAnotherServicePutNothingIntoTheLine) {
  const std::string id = "GET /latest/meta-data/instance-id";
  for (const std::string& wrong :
       {answer("i-0\r\nrank 3 was killed"), answer("i-\x1b[2J"), answer("<html>"),
        answer("i-" + std::string(500, '0')), answer("i-" + std::string(9000, '0')),
        std::string("HTTP/1.1 404 Not Found\r\n\r\ni-0abc"), std::string("i-0abc"),
        std::string("HTTP/1.1 200 OK\r\ni-0abc")}) {
    Texts answers = kAnswers;
    answers[id] = wrong;
    Service service(answers);
    EXPECT_EQ(asked(at(service)), "EC2, p3.16xlarge, us-east-1a") << wrong.substr(0, 80);
  }
  Texts answers = kAnswers;
  answers["PUT /latest/api/token"] = answer("a\r\nHost: elsewhere");
  Service service(answers);
  EXPECT_EQ(asked(at(service)), "EC2");
  EXPECT_EQ(service.end().size(), 1U) << "with such a token nothing more is asked";
}

TEST(CloudInstances, AServiceThatDoesNotAnswerIsGivenUpAfterASecond) {
  Texts answers = kAnswers;
  answers["GET /latest/meta-data/instance-type"].clear();
  Service service(answers);
  const system::Stopwatch watch;
  EXPECT_EQ(asked(at(service)), "EC2 i-0123456789abcdef0");
  EXPECT_GE(watch.seconds(), 0.9);
  EXPECT_EQ(service.end().size(), 3U) << "the second is one for all requests";
}

}  // namespace
}  // namespace longhaul::cluster
