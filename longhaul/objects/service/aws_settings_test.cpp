#include "longhaul/objects/service/aws_settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::objects {
namespace {

/// Takes away all settings of the environment, so that only what a test sets decides.
class AwsSettingsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION",
          "AWS_VIRTUAL_HOSTING", "AWS_NO_SIGN_REQUEST", "AWS_CA_BUNDLE", "SSL_CERT_FILE",
          "AWS_PROFILE", "AWS_REQUEST_CHECKSUM_CALCULATION", "LONGHAUL_OBJECTS_ETAGS"}) {
      ::unsetenv(name);
    }
    ::setenv("AWS_CONFIG_FILE", (dir_.path() / "config").c_str(), 1);
  }
  void TearDown() override { ::unsetenv("AWS_CONFIG_FILE"); }
  void set(const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), 1);
  }

  TestDirectory dir_;
};

TEST_F(AwsSettingsTest, TheStoreIsThatOfAwsWhereNothingIsSaid) {
  const AwsSettings settings = aws_settings();
  EXPECT_EQ(settings.endpoint, "");
  EXPECT_EQ(settings.scheme, "https");
  EXPECT_EQ(settings.region, "");
  EXPECT_FALSE(settings.anonymous);
  EXPECT_FALSE(settings.virtual_hosts);
}

TEST_F(AwsSettingsTest, TheEndpointOfS3IsBeforeThatOfAllServices) {
  set("AWS_ENDPOINT_URL", "https://other:1");
  EXPECT_EQ(aws_settings().endpoint, "other:1");
  set("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000/");
  const AwsSettings settings = aws_settings();
  EXPECT_EQ(settings.endpoint, "127.0.0.1:9000");
  EXPECT_EQ(settings.scheme, "http");
  EXPECT_EQ(settings.region, "us-east-1");
}

TEST_F(AwsSettingsTest, TheProfileOfTheConfigFileCountsWhereTheEnvironmentIsSilent) {
  write_text_durable(dir_.path() / "config",
                     "# mine\n[default]\nregion = eu-west-1\n\n[profile lab]\n"
                     "region=us-west-2\nendpoint_url = http://lab:9000\ns3 =\n"
                     "  addressing_style = virtual\n");
  EXPECT_EQ(aws_settings().region, "eu-west-1");
  EXPECT_FALSE(aws_settings().virtual_hosts);
  set("AWS_PROFILE", "lab");
  const AwsSettings settings = aws_settings();
  EXPECT_EQ(settings.region, "us-west-2");
  EXPECT_EQ(settings.endpoint, "lab:9000");
  EXPECT_TRUE(settings.virtual_hosts);
  set("AWS_REGION", "sa-east-1");
  EXPECT_EQ(aws_settings().region, "sa-east-1");
}

TEST_F(AwsSettingsTest, AccessWithoutCredentialsIsAskedForByTheUsualVariable) {
  set("AWS_NO_SIGN_REQUEST", "0");
  EXPECT_FALSE(aws_settings().anonymous);
  set("AWS_NO_SIGN_REQUEST", "YES");
  EXPECT_TRUE(aws_settings().anonymous);
}

TEST_F(AwsSettingsTest, AStoreComparesNothingWhereNoChecksumsAreSent) {
  EXPECT_TRUE(aws_settings().checksums);
  set("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported");
  EXPECT_TRUE(aws_settings().checksums);
  set("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED");
  EXPECT_FALSE(aws_settings().checksums);
  ::unsetenv("AWS_REQUEST_CHECKSUM_CALCULATION");
  write_text_durable(dir_.path() / "config",
                     "[default]\nrequest_checksum_calculation = when_required\n");
  EXPECT_FALSE(aws_settings().checksums);
  set("AWS_CONFIG_FILE", (dir_.path() / "none").string());
  set("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000");
  EXPECT_FALSE(aws_settings().checksums);
}

TEST_F(AwsSettingsTest,
       EtagsAreOpaqueAtAwsAndShowBehindAnEndpointUnlessTheUserSaysWhatTheyAre) {
  EXPECT_EQ(aws_settings().has_other_etags, true);
  set("AWS_ENDPOINT_URL_S3", "https://bucket.vpce-1.s3.eu-west-1.vpce.amazonaws.com");
  EXPECT_EQ(aws_settings().has_other_etags, true);
  set("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000");
  EXPECT_EQ(aws_settings().has_other_etags, std::nullopt);
  set("LONGHAUL_OBJECTS_ETAGS", "opaque");
  EXPECT_EQ(aws_settings().has_other_etags, true);
  set("LONGHAUL_OBJECTS_ETAGS", "md5");
  EXPECT_EQ(aws_settings().has_other_etags, false);
  set("LONGHAUL_OBJECTS_ETAGS", "none");
  EXPECT_HAS(message_of<InputError>([] { (void)aws_settings(); }),
             "LONGHAUL_OBJECTS_ETAGS is 'none'");
}

TEST_F(AwsSettingsTest, AnEndpointThatIsNoAddressIsRefusedWithoutRepeatingIt) {
  for (const char* text :
       {"127.0.0.1:9000", "ftp://host", "http://", "http://a:SECRET@b"}) {
    set("AWS_ENDPOINT_URL_S3", text);
    try {
      aws_settings();
      FAIL() << text;
    } catch (const InputError& error) {
      EXPECT_HAS(std::string(error.what()), "https://HOST:PORT");
      EXPECT_EQ(std::string(error.what()).find("SECRET"), std::string::npos);
    }
  }
}

TEST_F(AwsSettingsTest, AFileOfCertificatesThatIsNamedMustBeThere) {
  set("AWS_CA_BUNDLE", (dir_.path() / "absent.pem").string());
  try {
    aws_settings();
    FAIL();
  } catch (const InputError& error) {
    EXPECT_HAS(std::string(error.what()), "absent.pem: the file of certificates");
  }
  write_text_durable(dir_.path() / "absent.pem", "x");
  EXPECT_EQ(aws_settings().certificates, (dir_.path() / "absent.pem").string());
}

}  // namespace
}  // namespace longhaul::objects
