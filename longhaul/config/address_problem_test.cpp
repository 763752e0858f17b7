#include "longhaul/objects/address_problem.h"

#include <fmt/format.h>

#include "longhaul/base/text.h"
#include "longhaul/config/fields.h"
#include "tests/support/settings.h"

namespace longhaul::config {
namespace {

constexpr std::string_view kSecret = "SECRETX";
constexpr std::string_view kRefusal = "holds no credentials and no options";

const std::vector<std::string> kWithSecrets = {
    "s3://AKIA:SECRETX@corpus/x",
    "s3://AKIA:SECRETX/x",
    "s3://AKIA:/SECRETX@corpus/x",
    "s3:/AKIA:SECRETX@corpus/x",
    "s3://AKIA:a/SECRETX@corpus/x",
    "s3://SECRETX@corpus/x",
    "s3://corpus/x?access_key=SECRETX",
    "S3://AKIA:SECRETX@corpus/x",
    "https://me:SECRETX@host/x",
    "s3a://AKIA:a/SECRETX@corpus/x",
    "S3N://AKIA:SECRETX/x",
    "https://corpus.s3.amazonaws.com/x?X-Amz-Date=1&X-Amz-Signature=SECRETX"};

void expect_refusal(const std::string& message) {
  EXPECT_NE(message.find(kRefusal), std::string::npos) << message;
  EXPECT_EQ(message.find(kSecret), std::string::npos) << message;
}

TEST(AddressProblem, ASecretIsFoundWhereverItStandsAndNotRepeated) {
  for (const std::string& address : kWithSecrets) {
    for (const std::string_view around :
         {"{}", "--data {} --seq-len 8", "--data={}", "data.train=[{{path=\"{}\"}}]",
          "['{}']", "s3://corpus/x {}", "s3://corpus/x,{}", "{} {}", "{},{}"}) {
      const std::string text = fmt::format(fmt::runtime(around), address, address);
      SCOPED_TRACE(text);
      expect_refusal(objects::secret_problem(text));
    }
  }
}

TEST(AddressProblem, OtherTextsHoldNoSecret) {
  for (const char* text : {"",
                           "s3://corpus/x",
                           "s3://corpus/a@b:c/x",
                           "s3://corpus/st?re/*.jsonl",
                           "s3://corpus/day=1/?.jsonl",
                           "s3://corpus/202?/day=1/*.parquet",
                           "docker://me@host#image/a:24.01",
                           "docker://image:24.01",
                           "tcp://10.0.0.1:29500",
                           "https://host/x?page=2",
                           "docker://ubuntu:24.04@sha256:0123abcd",
                           "s3://corpus holds text. Q: what is it?",
                           "s3://corpus mail me@host for x = y",
                           "The text in s3://corpus: how long is it?",
                           "(as in s3://corpus:)",
                           "--container-mounts=/mnt/s3:/data:ro",
                           "-x PATH=/opt/s3:/usr:/bin",
                           "docker run -v /mnt/s3:/data:ro image",
                           "C:/runs",
                           "a@b",
                           "a:/b@c",
                           "--set",
                           "x ? y = 3 : //"}) {
    EXPECT_EQ(objects::secret_problem(text), "") << text;
  }
  EXPECT_EQ(objects::address_problem("s3://corpus/day=1/?.jsonl"), "");
  EXPECT_NE(objects::address_problem("s3://c/x"), "") << "no bucket has such a name";
}

/// A setting may be refused for its type, its value or its name. Each of these messages
/// repeats what was given, so each must leave out the secret of an address.
TEST(AddressProblem, NoSettingOfAnyTypeRepeatsASecret) {
  RunConfig config;
  std::vector<std::string> keys = all_names(sections_of(config));
  keys.insert(keys.end(), {"model.override.x", "run.none", "none.x"});
  for (const std::string& key : keys) {
    const std::string& address = kWithSecrets[key.size() % kWithSecrets.size()];
    for (const std::string_view form :
         {"\"{}\"", "'{}'", "[\"{}\"]", "[1, [\"{}\"]]", "{{ path = \"{}\" }}",
          "[{{ path = \"{}\" }}]", "{{ \"{}\" = 1 }}", "{{ file = 1, x = [\"{}\"] }}"}) {
      const std::string value = fmt::format(fmt::runtime(form), address);
      SCOPED_TRACE(key + " = " + value);
      expect_refusal(refused("", {key + "=" + value}));
      const size_t point = key.find('.');
      const std::string text = fmt::format("[{}]\n{} = {}\n", key.substr(0, point),
                                           key.substr(point + 1), value);
      expect_refusal(
          message_of<ConfigError>([&] { parse_run_config(text, "run.toml"); }));
    }
  }
}

TEST(AddressProblem, NoMistakeOfTomlRepeatsASecret) {
  for (const std::string& address : kWithSecrets) {
    for (const std::string_view line :
         {"{}", "train = {}", "train = \"{}", "train: {}", "- {}", "train = [{}]",
          "train = ({})", "train = {},", "train = {{ path: \"{}\" }}", "\"{}\" = 1 2"}) {
      const std::string text = fmt::format(fmt::runtime(line), address);
      SCOPED_TRACE(text);
      expect_refusal(message_of<ConfigError>(
          [&] { parse_run_config("[data]\n" + text + "\nx = 1\n", "run.toml"); }));
      expect_refusal(refused("", {text}));
    }
    expect_refusal(refused("", {"data.train=" + address}));
    expect_refusal(refused("", {"data.train=(" + address + ")"}));
    expect_refusal(refused("", {address + "=1"}));
  }
}

}  // namespace
}  // namespace longhaul::config
