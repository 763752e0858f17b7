#include "longhaul/objects/etag.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace longhaul::objects {
namespace {

/// Compares bytes, which come in pieces, with an ETag.
bool fits(const std::string& etag, std::string_view bytes, size_t piece) {
  EtagProof proof(etag, bytes.size());
  for (size_t at = 0; at < bytes.size(); at += piece) {
    proof.update(std::as_bytes(std::span(bytes.substr(at, piece))));
  }
  return proof.fits();
}

TEST(EtagProof, TheEtagOfAnObjectThatWasSentAtOnceIsTheMd5OfItsBytes) {
  // The first texts stand in RFC 1321. The others have about the length of a block, and
  // their sums are those of md5sum.
  const std::pair<std::string, std::string> known[] = {
      {"", "d41d8cd98f00b204e9800998ecf8427e"},
      {"message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
      {std::string(55, 'a'), "ef1772b6dff9a122358552954ad0df65"},
      {std::string(56, 'a'), "3b0c8ac703f828b04c6c197006d17218"},
      {std::string(64, 'a'), "014842d480b571495a4a0363793f7367"},
      {std::string(1'000'000, 'a'), "7707d6ae4e027c70eea2a935c2296f21"},
  };
  for (const auto& [text, md5] : known) {
    for (const size_t piece : {1UL, 63UL, 1000UL}) {
      if (text.size() / piece > 100'000) continue;
      EXPECT_TRUE(fits("\"" + md5 + "\"", text, piece)) << text.size() << " " << piece;
    }
    EXPECT_FALSE(fits("\"" + md5 + "\"", text + "x", 1000));
  }
}

TEST(EtagProof, OfPartsItIsMadeOfTheirMd5sWhereTheirSizeIsAUsualOne) {
  const std::string text((8 << 20) + 5, 'a');  // aws s3 cp sends 8 MiB and 5 bytes
  const std::string etag = "\"a85dbf884c4afc309634b07db359ab76-2\"";
  EXPECT_FALSE(EtagProof(etag, text.size()).is_plain());
  EXPECT_TRUE(fits(etag, text, 1'000'000));
  EXPECT_FALSE(fits(etag, text.substr(1) + "b", 1'000'000));
  EXPECT_TRUE(fits("\"c55b7fbf89487843a8a8484ada99a79b-2\"", text, 1 << 20));  // 5 MiB
}

TEST(EtagProof, OfManyPartsAnyWholeSizeIsTried) {
  const std::string text((40 << 20) + 5, 'a');
  EXPECT_TRUE(fits("\"4e4d8a2bb6a4c647ffc59820dab06110-6\"", text, 1 << 20));  // 7 MiB
  EXPECT_FALSE(
      fits("\"4e4d8a2bb6a4c647ffc59820dab06110-6\"", "b" + text.substr(1), 1 << 20));
  EXPECT_TRUE(fits("\"70f738170acfbb0513b42a6c4cc25359-1\"", std::string(100, 'a'), 7));
}

TEST(EtagProof, AnotherEtagSaysNothing) {
  for (const char* etag :
       {"", "\"v1\"", "\"d41d8cd98f00b204e9800998ecf8427e-1x\"",
        "\"D41D8CD98F00B204E9800998ECF8427E\"", "\"d41d8cd98f00b204e9800998ecf8427e-7\"",
        "\"d41d8cd98f00b204e9800998ecf8427e-0\"",
        "\"d41d8cd98f00b204e9800998ecf8427e-17592186044416\""}) {
    EXPECT_FALSE(EtagProof(etag, 100).compares()) << etag;
    EXPECT_TRUE(fits(etag, "text", 1)) << etag;
  }
}

}  // namespace
}  // namespace longhaul::objects
