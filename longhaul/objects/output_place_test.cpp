#include "longhaul/objects/output_place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::objects {
namespace {

constexpr const char* kOut = "s3://bucket/out";

/// Objects in memory, with a number for each version.
class Objects {
 public:
  OutputRequests requests() {
    return {.look = [this](const Address& address) { return look(address); },
            .list = [this](const Address& prefix, bool) { return list(prefix); },
            .put = [this](const fs::path& from, const Address& to) { put(from, to); },
            .put_text = [this](const std::string& text,
                               const Address& to) { make(to.key, text); },
            .read_text = [this](const Address& address) { return read(address.key); },
            .remove = [this](const Address& address) { remove(address.key); }};
  }
  void make(const std::string& key, const std::string& text) {
    const std::lock_guard lock(mutex_);
    made.push_back(key);
    texts_[key] = {text, std::to_string(++versions_)};
  }
  std::optional<std::string> read(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = texts_.find(key);
    if (found == texts_.end()) return std::nullopt;
    return found->second.first;
  }
  std::vector<std::string> keys() const {
    std::vector<std::string> all;
    for (const auto& [key, text] : texts_) all.push_back(key);
    return all;
  }

  std::vector<std::string> made;  ///< the keys in the order in which they were made
  std::function<void(const std::string& key)> before_put;

 private:
  using Text = std::pair<std::string, std::string>;  ///< a text and its version

  std::optional<ObjectInfo> look(const Address& address) {
    const std::lock_guard lock(mutex_);
    const auto found = texts_.find(address.key);
    if (found == texts_.end()) return std::nullopt;
    return ObjectInfo{address, found->second.first.size(), found->second.second};
  }
  std::vector<ObjectInfo> list(const Address& prefix) {
    const std::lock_guard lock(mutex_);
    std::vector<ObjectInfo> found;
    for (const auto& [key, text] : texts_) {
      if (!key.starts_with(prefix.key + "/")) continue;
      found.push_back({{prefix.bucket, key}, text.first.size(), text.second});
    }
    return found;
  }
  void put(const fs::path& from, const Address& to) {
    if (before_put) before_put(to.key);
    make(to.key, longhaul::read_text(from));
  }
  void remove(const std::string& key) {
    const std::lock_guard lock(mutex_);
    texts_.erase(key);
  }

  std::mutex mutex_;
  std::map<std::string, Text> texts_;
  int versions_ = 0;
};

class OutputPlaceTest : public testing::Test {
 protected:
  void SetUp() override { ::setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1); }
  void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }

  OutputUse use(const std::string& replaces = "", bool goes_on = false) {
    return {.replaces = replaces,
            .goes_on = goes_on,
            .last = {"index.json", "store.json"},
            .tell = [this](const std::string& line) { told_.push_back(line); },
            .warn = [this](const std::string& line) { warned_.push_back(line); }};
  }
  OutputPlace place(const OutputUse& use, const std::string& named = kOut) {
    return {named, store_.requests(), use};
  }
  /// Writes files of these names to the output's path.
  static void write(const OutputPlace& out, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const fs::path file = fs::path(out.path()) / name;
      fs::create_directories(file.parent_path());
      write_file(file, "new " + name);
    }
  }
  std::string refused(const OutputUse& use, const std::string& named = kOut) {
    return message_of<InputError>([&] { (void)place(use, named); });
  }

  TestDirectory cache_;
  Objects store_;
  std::vector<std::string> told_;
  std::vector<std::string> warned_;
};

TEST_F(OutputPlaceTest, APathIsLeftAsItIs) {
  const OutputPlace out = place(use(), "data/*mine");
  EXPECT_EQ(out.path(), "data/*mine");
  EXPECT_FALSE(out.is_address());
  EXPECT_EQ(out.as_named("data/*mine: wrong"), "data/*mine: wrong");
  out.upload();
  EXPECT_TRUE(store_.made.empty());
  EXPECT_TRUE(fs::is_empty(cache_.path()));
}

TEST_F(OutputPlaceTest, WhatMakesADirectoryCountIsMadeLastAndNoClaimIsLeft) {
  const OutputPlace out = place(use());
  write(out, {"store.json", "a/index.json", "z.bin", "a/b.bin"});
  EXPECT_EQ(out.as_named(out.path() + "/z.bin"), std::string(kOut) + "/z.bin");
  out.upload();
  EXPECT_EQ(store_.keys(), (std::vector<std::string>{"out/a/b.bin", "out/a/index.json",
                                                     "out/store.json", "out/z.bin"}));
  EXPECT_EQ(store_.read("out/z.bin"), "new z.bin");
  ASSERT_GE(store_.made.size(), 2U);
  EXPECT_EQ(store_.made.back(), "out/store.json");
  EXPECT_EQ(store_.made[store_.made.size() - 2], "out/a/index.json");
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_HAS(told_[0], "uploaded 4 files, ");
  EXPECT_TRUE(warned_.empty());
  EXPECT_FALSE(fs::exists(out.path()));
}

TEST_F(OutputPlaceTest, ObjectsAreReplacedWhereTheUseSaysSoAlone) {
  store_.make("out/store.json", "old");
  store_.make("out/gone.bin", "old");
  EXPECT_HAS(refused(use()), "objects lie there already; name another address");
  EXPECT_HAS(refused(use("index.json")), "without a index.json, and are not replaced");
  const OutputPlace out = place(use("store.json"));
  write(out, {"store.json", "z.bin"});
  out.upload();
  EXPECT_EQ(store_.keys(), (std::vector<std::string>{"out/store.json", "out/z.bin"}));
  EXPECT_EQ(store_.read("out/store.json"), "new store.json");
}

TEST_F(OutputPlaceTest, AnotherDirectoryThatIsWholeStays) {
  store_.make("out/store.json", "old");
  store_.make("out/below/index.json", "whole");
  EXPECT_HAS(refused(use("store.json")),
             "out/below/index.json makes another directory whole");
}

TEST_F(OutputPlaceTest, AddressesThatNothingCanBeWrittenToAreRefused) {
  store_.make("object", "an object");
  EXPECT_HAS(refused(use(), "s3://bucket"), "names a whole bucket");
  EXPECT_HAS(refused(use(), "s3://bucket/x[1]"), "has a character of patterns");
  EXPECT_HAS(refused(use(), "s3://bucket/object"), "an object of this name is there");
  OutputUse several = use();
  several.processes = 2;
  EXPECT_HAS(refused(several), "2 processes share this work");
}

TEST_F(OutputPlaceTest, OneCommandAtATimeWritesToAnAddressAndBelowIt) {
  const OutputPlace first = place(use());
  EXPECT_HAS(refused(use()), "another command of this machine is writing there");
  EXPECT_HAS(refused(use(), std::string(kOut) + "/below"),
             "one of the two addresses lies below the other");
  EXPECT_TRUE(place(use(), std::string(kOut) + "-val").is_address());
}

TEST_F(OutputPlaceTest, ObjectsOfAnotherUploadLeaveNothingThatCounts) {
  const OutputPlace out = place(use());
  write(out, {"store.json", "a.bin"});
  store_.before_put = [&](const std::string& key) {
    if (key == "out/a.bin") store_.make("out/stranger.bin", "theirs");
  };
  EXPECT_HAS(message_of<InputError>([&] { out.upload(); }),
             "another command has been uploading to it meanwhile, as "
             "s3://bucket/out/stranger.bin shows");
  EXPECT_FALSE(store_.read("out/store.json"));
  EXPECT_TRUE(store_.read("out/stranger.bin"));
  ASSERT_EQ(warned_.size(), 1U);
  EXPECT_HAS(warned_[0], "may have files of two uploads, and counts as nothing");
  EXPECT_TRUE(fs::exists(out.path()));
}

TEST_F(OutputPlaceTest, AnUploadThatFailedGoesOnWithItsOwnObjects) {
  {
    const OutputPlace out = place(use());
    write(out, {"store.json", "a.bin", "b.bin"});
    store_.before_put = [](const std::string& key) {
      if (key == "out/store.json") throw TemporaryError("objects", "no answer");
    };
    EXPECT_THROW(out.upload(), TemporaryError);
    EXPECT_FALSE(store_.read("out/store.json"));
    EXPECT_TRUE(store_.read("out/a.bin"));
  }
  store_.before_put = nullptr;
  const OutputPlace again = place(use("", /*goes_on=*/true));
  EXPECT_TRUE(fs::exists(fs::path(again.path()) / "b.bin"));
  again.upload();
  EXPECT_EQ(store_.keys(),
            (std::vector<std::string>{"out/a.bin", "out/b.bin", "out/store.json"}));
}

}  // namespace
}  // namespace longhaul::objects
