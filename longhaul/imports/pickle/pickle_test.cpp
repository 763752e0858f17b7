#include "longhaul/imports/pickle/pickle.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "tests/support/weights_files.h"

namespace longhaul::imports {
namespace {

using Kind = PickleKind;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

PickleTree parse(const std::string& text) { return parse_pickle(bytes_of(text), "p"); }

std::string problem(const std::string& text, const PickleLimits& limits = {}) {
  return message_of<InputError>(
      [&] { parse_pickle(bytes_of(text), "p", nullptr, limits); });
}

std::string word(const std::string& text) {
  std::string out = "X";
  const auto size = static_cast<uint32_t>(text.size());
  out.append(reinterpret_cast<const char*>(&size), 4);
  return out + text;
}

// Returns a persistent id of a float storage '0' with `count` elements. The pickle has
// one byte for `count`.
std::string storage(char count) {
  return "(" + word("storage") + "ctorch\nFloatStorage\n" + word("0") + word("cpu") +
         "K" + count + "tQ";
}

// Returns rebuild(storage, offset, shape, strides, False, {}).
std::string tensor(char count, char offset, const std::string& shape,
                   const std::string& strides) {
  return "\x80\x02"
         "ctorch._utils\n_rebuild_tensor_v2\n(" +
         storage(count) + "K" + offset + shape + strides + "\x89}tR.";
}

TEST(Pickle, PlainValuesOfAllKindsComeOut) {
  const PickleTree tree = parse(
      "\x80\x04"
      "(" +
      word("a") + "J\xff\xff\xff\xff" + word("b") +
      std::string("G\x3f\xf8\0\0\0\0\0\0", 9) + word("c") + "\x88" + word("d") + "N" +
      word("e") +
      "](K\x01K\x02"
      "e" +
      word("f") + std::string("\x8a\x02\x00\x80", 4) + "d.");
  ASSERT_TRUE(tree.is(tree.root, Kind::Dict));
  EXPECT_EQ(tree.as_int(*tree.find(tree.root, "a")), -1);
  EXPECT_EQ(tree.real(*tree.find(tree.root, "b")), 1.5);
  EXPECT_EQ(tree.integer(*tree.find(tree.root, "c")), 1);
  EXPECT_TRUE(tree.is(*tree.find(tree.root, "d"), Kind::None));
  EXPECT_EQ(tree.as_int(*tree.find(tree.root, "f")), -32768);
  EXPECT_EQ(tree.as_ints(*tree.find(tree.root, "e")), (std::vector<int64_t>{1, 2}));
  EXPECT_FALSE(tree.find(tree.root, "g"));
}

TEST(Pickle, ATensorIsAViewOfItsStorage) {
  const PickleTree tree = parse(tensor(7, 1, "K\x02K\x03\x86", "K\x03K\x01\x86"));
  ASSERT_TRUE(tree.is(tree.root, Kind::Tensor));
  const PickleTensor& view = tree.tensor(tree.root);
  EXPECT_EQ(view.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(view.strides, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(view.offset, 1);
  EXPECT_EQ(view.dtype, format::DType::F32);
  EXPECT_EQ(tree.storages.at(0).key, "0");
  EXPECT_EQ(tree.storages.at(0).count, 7U);
}

TEST(Pickle, AViewThatLeavesItsStorageIsRefused) {
  EXPECT_HAS(problem(tensor(6, 1, "K\x02K\x03\x86", "K\x03K\x01\x86")), "element 6");
  EXPECT_HAS(problem(tensor(1, 0, "K\x64\x85", std::string("K\0\x85", 3))),
             "100 elements over a storage of 1");
  EXPECT_HAS(problem(tensor(9, 0, "K\x02K\x03\x86", "K\x01\x85")),
             "2 dims and 1 strides");
  const std::string huge = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
  EXPECT_HAS(problem(tensor(9, 0, huge + huge + "\x86", "K\x01K\x01\x86")), "63 bits");
  EXPECT_HAS(problem(tensor(9, 0, "J\xff\xff\xff\xff\x85", "K\x01\x85")), "63 bits");
}

TEST(Pickle, ANameThatNoTensorNeedsIsRefusedByNameWhereverItStands) {
  const std::string names[] = {"cposix\nsystem\n(" + word("id") + "tR.",  // REDUCE
                               "(" + word("id") + "iposix\nsystem\n.",    // INST
                               "(cposix\nsystem\n" + word("id") + "o.",   // OBJ
                               "cposix\nsystem\n)\x81.",                  // NEWOBJ
                               "\x8c\x05posix\x8c\x06system\x93)R.",      // STACK_GLOBAL
                               "cposix\nsystem\n)}\x92.",                 // NEWOBJ_EX
                               "cposix\nsystem\n."};                      // merely named
  for (const std::string& text : names) EXPECT_HAS(problem(text), "posix.system");
  EXPECT_HAS(problem("cbuiltins\neval\n(" + word("1") + "tR."), "builtins.eval");
  EXPECT_HAS(problem("cbuiltins\ngetattr\n(ctorch\nSize\n" + word("__class__") + "tR."),
             "builtins.getattr of the name torch.Size");
  EXPECT_HAS(problem("ctorch.hub\nload\n)R."), "torch.hub.load");
}

TEST(Pickle, WhatIsNoClassCannotBeCalledOrGivenAttributes) {
  EXPECT_HAS(problem("K\x01)R."), "calls the number 1");
  EXPECT_HAS(problem("ctorch\nfloat32\n)R."), "calls torch.float32");
  EXPECT_HAS(problem("]}b."), "attributes of a list");
}

TEST(Pickle, AKnownClassBecomesAnInertRecord) {
  const PickleTree tree =
      parse("ctorch_xla.utils.serialization\nTensorReference\n)\x81}" + word("tid") +
            "K\x05sb.");
  ASSERT_TRUE(tree.is(tree.root, Kind::Object));
  EXPECT_EQ(tree.object_class(tree.root),
            "torch_xla.utils.serialization.TensorReference");
  EXPECT_EQ(tree.as_int(*tree.find(tree.root, "tid")), 5);
}

TEST(Pickle, ContainersTakeOnlyWhatTheyHold) {
  EXPECT_HAS(problem("](K\x01K\x02u."), "puts keys into a list");
  EXPECT_HAS(problem("}(K\x01"
                     "e."),
             "puts items into a dict");
  EXPECT_HAS(problem("}(K\x01u."), "a key without a value");
  EXPECT_HAS(problem("K\x01K\x02K\x03s."), "puts keys into the number 1");
}

TEST(Pickle, BrokenStacksMemosAndEndsAreRefused) {
  EXPECT_HAS(problem("."), "0 values");
  EXPECT_HAS(problem("NN."), "2 values");
  EXPECT_HAS(problem("a."), "empty stack");
  EXPECT_HAS(problem("(N."), "values on its stack");
  EXPECT_HAS(problem("e."), "never began");
  EXPECT_HAS(problem("h\x07."), "memo entry 7 was never made");
  EXPECT_HAS(problem("Nr\xff\xff\xff\x7f."), "memo entry 2147483647 after 0");
  EXPECT_HAS(problem("N"), "truncated");
  EXPECT_HAS(problem("X\xff\xff\xff\x7f"
                     "abc"),
             "2147483647 bytes");
  EXPECT_HAS(problem(std::string("\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.", 11)), "frame");
  EXPECT_HAS(problem("\x82\x01."), "0x82");
  EXPECT_HAS(problem("\x80\x09N."), "protocol 9");
}

TEST(Pickle, ValuesAreCounted) {
  PickleLimits limits;
  limits.max_values = 100;
  EXPECT_HAS(problem(std::string(200, ')') + ".", limits), "more than 100 values");
  EXPECT_HAS(problem("N" + std::string(200, '2') + ".", limits), "more than 100 values");
  limits.max_bytes = 50;
  EXPECT_HAS(problem(std::string(80, ')') + ".", limits), "more than 50 bytes");
}

TEST(Pickle, ATreeSurvivesTheWayThroughAPipeAndNothingElseDoes) {
  const PickleTree tree = parse(tensor(7, 1, "K\x02K\x03\x86", "K\x03K\x01\x86"));
  std::string bytes = "xx";
  tree.serialise(bytes);
  size_t position = 2;
  const PickleTree again = PickleTree::deserialise(bytes, position);
  EXPECT_EQ(position, bytes.size());
  EXPECT_EQ(again.tensor(again.root).shape, tree.tensor(tree.root).shape);
  EXPECT_EQ(again.storages.at(0).dtype, format::DType::F32);
  // With any byte changed the result is an error, or a tree in which every reference
  // leads to a value of the tree.
  for (size_t i = 2; i < bytes.size(); ++i) {
    std::string broken = bytes;
    broken[i] = static_cast<char>(broken[i] ^ 0x7f);
    position = 2;
    try {
      const PickleTree other = PickleTree::deserialise(broken, position);
      EXPECT_LT(other.root, other.size());
    } catch (const InputError&) {
    }
  }
}

}  // namespace
}  // namespace longhaul::imports
