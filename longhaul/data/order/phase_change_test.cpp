#include "longhaul/data/order/phase_change.h"

#include <gtest/gtest.h>

namespace longhaul::data {
namespace {

Phase phase(std::vector<PhaseSource> sources) {
  Phase result;
  result.seq_len = 32;
  result.sources = std::move(sources);
  return result;
}

std::vector<std::string> texts(const Phase& before, const Phase& now) {
  std::vector<std::string> result;
  for (const PhaseChange& change : phase_changes(before, now)) {
    result.push_back((change.of_content ? "! " : "") + change.text);
  }
  return result;
}

using Texts = std::vector<std::string>;

TEST(PhaseChange, OtherDataUnderTheSameNameIsToldWithBothFingerprints) {
  EXPECT_EQ(texts(phase({{"aa", 1.0, 90, "wiki"}}), phase({{"bb", 1.0, 91, "wiki"}})),
            Texts({"! wiki holds other data than before: its fingerprint was aa (90 "
                   "sequences), is bb (91 sequences)"}));
}

TEST(PhaseChange, WhatSettingsChangeIsNoOtherContent) {
  Phase now = phase({{"aa", 2.0, 90, "wiki"}, {"cc", 1.0, 5, "code"}});
  now.seq_len = 64;
  EXPECT_EQ(
      texts(phase({{"aa", 1.0, 90, "wiki"}, {"bb", 1.0, 7, "books"}}), now),
      Texts({"the length of a sequence was 32, is 64", "the weight of wiki was 1, is 2",
             "code is new (fingerprint cc, 5 sequences)",
             "books is gone (fingerprint bb)"}));
}

TEST(PhaseChange, TheSameDataElsewhereIsTheSameStream) {
  EXPECT_EQ(
      texts(phase({{"aa", 1.0, 90, "old/wiki"}}), phase({{"aa", 1.0, 90, "new/wiki"}})),
      Texts());
}

TEST(PhaseChange, AnotherOrderOfTheSourcesIsSaid) {
  EXPECT_EQ(texts(phase({{"aa", 1.0, 90, "a"}, {"bb", 1.0, 9, "b"}}),
                  phase({{"bb", 1.0, 9, "b"}, {"aa", 1.0, 90, "a"}})),
            Texts({"the sources stand in another order"}));
}

}  // namespace
}  // namespace longhaul::data
