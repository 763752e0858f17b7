#include "longhaul/translate/yaml_reader.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::translate {
namespace {

std::string said(std::string_view text) {
  std::string out;
  for (const Said& one : read_yaml(text, "f.yaml")) {
    out += one.name + (one.null ? "~" : "=" + one.text()) + " ";
  }
  return out;
}

std::string refused(const std::string& text) {
  return message_of<InputError>([&] { read_yaml(text, "f.yaml"); });
}

TEST(YamlReader, SaysEachKeyWithThoseAbove) {
  EXPECT_EQ(said("a: 1\nb:\n  c: x y\n  d: {e: '2'}\n"), "a=1 b.c=x y b.d.e=2 ");
  EXPECT_EQ(said("a: null\nb: ~\nc:\nd: 'null'\n"), "a~ b~ c~ d=null ");
  EXPECT_EQ(read_yaml("a: 1\nb:\n  c: 2\n", "f.yaml")[1].where, "f.yaml:3:6");
}

TEST(YamlReader, ItemsOfAListShareItsName) {
  EXPECT_EQ(said("a:\n- x\n- y\nb:\n- c: 1\n  d: 2\n- c: 3\n"),
            "a=x a=y b.c=1 b.d=2 b.c=3 ");
}

TEST(YamlReader, WhatGrowsIsRefused) {
  const std::string bomb = "a: &x [1, 1]\nb: [*x, *x]\n";
  EXPECT_NE(refused(bomb).find("f.yaml:2:5: an alias (*name)"), std::string::npos);
  EXPECT_NE(refused("a: " + std::string(2000, '[') + std::string(2000, ']'))
                .find("nested deeper"),
            std::string::npos);
  std::string many = "a:\n";
  for (int i = 0; i < 10'001; ++i) many += "- 1\n";
  EXPECT_NE(refused(many).find("more than 10000 values"), std::string::npos);
}

TEST(YamlReader, WhatIsNoTrainingFileIsNamedWithItsPlace) {
  EXPECT_NE(refused("a: [1\nb: 2\n").find("f.yaml:2:2: not valid YAML"),
            std::string::npos);
  EXPECT_NE(refused("- 1\n").find("f.yaml:1:1: expected keys with values"),
            std::string::npos);
  EXPECT_NE(refused("a: 1\na: 2\n").find("f.yaml:2:1: the key a stands twice"),
            std::string::npos);
  EXPECT_NE(refused("a: 1\n---\nb: 2\n").find("f.yaml:2:1: a second document"),
            std::string::npos);
  EXPECT_NE(refused("# nothing\n").find("holds no YAML document"), std::string::npos);
  EXPECT_NE(refused("? [a]\n: 1\n").find("a key is a word"), std::string::npos);
}

}  // namespace
}  // namespace longhaul::translate
