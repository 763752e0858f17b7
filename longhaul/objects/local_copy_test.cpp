#include "longhaul/objects/local_copy.h"

#include <gtest/gtest.h>

#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::objects {
namespace {

constexpr uint64_t kSize = 1 << 20;

/// A cache on a disk whose free bytes a test sets. Each LocalCopies has locks of its own,
/// as another process has.
class LocalCopiesTest : public testing::Test {
 protected:
  LocalCopies copies() {
    CopyRequests requests;
    requests.space = [this] { return fs::space_info{capacity_, free_, free_}; };
    requests.fetch = [this](const ObjectInfo& object, const fs::path& to) {
      if (before_fetch_) std::exchange(before_fetch_, {})();
      const std::string name = fs::path(object.address.key).filename();
      std::string content(object.size, 'x');
      if (name == "store.json") content = record_;
      if (std::erase(wrong_, name) > 0)
        content.back() = static_cast<char>('a' + fetches_);
      if (always_wrong_ == name) content.back() = 'z';
      ++fetches_;
      write_text_durable(to, content);
      free_ -= object.size;
      if (after_fetch_) std::exchange(after_fetch_, {})();
      return hash_of(content);
    };
    return {requests, dir_ / "cache", 0, {}, paths_};
  }
  static std::shared_ptr<const fs::path> hold(LocalCopies& of, const std::string& name,
                                              bool waits = false) {
    const Address prefix{"bucket", "store"};
    return of.hold(prefix, {{prefix / name, kSize, "version"}}, waits);
  }
  static std::string hash_of(const std::string& content) {
    BlockHasher hasher;
    hasher.update(std::as_bytes(std::span(content)));
    return combine_hashes(hasher.finish());
  }
  /// Makes a store whose record knows the hash of "a" and of "tokenizer/b". Returns the
  /// objects.
  std::vector<ObjectInfo> recorded_store(const Address& prefix) {
    const std::string hash = hash_of(std::string(kSize, 'x'));
    record_ =
        json_text(Json{{"format", "longhaul token store"},
                       {"tokenizer", {{"files", {{{"name", "b"}, {"hash", hash}}}}}},
                       {"shards", {{{"token_file", {{"name", "a"}, {"hash", hash}}}}}}});
    free_ = 100 * kSize;
    return {{prefix / "store.json", record_.size(), "version"},
            {prefix / "a", kSize, "version"},
            {prefix / "tokenizer/b", kSize, "version"},
            {prefix / "c", kSize, "version"}};
  }
  /// Makes a copy of "a" and changes its bytes but not its time, as if the disk had
  /// failed.
  fs::path damaged_copy() {
    LocalCopies one = copies();
    fs::path file = *hold(one, "a") / "a";
    const auto time = fs::last_write_time(file);
    write_file(file, std::string(kSize, 'y'));
    fs::last_write_time(file, time);
    return file;
  }

  TestDirectory dir_;
  std::shared_ptr<CopyPaths> paths_ = std::make_shared<CopyPaths>();
  std::string record_;
  std::vector<std::string> wrong_ = {};  ///< names whose next fetches give other bytes
  std::string always_wrong_;
  int fetches_ = 0;
  uint64_t free_ = 0;
  uint64_t capacity_ = 0;
  std::function<void()> before_fetch_;
  std::function<void()> after_fetch_;
};

TEST_F(LocalCopiesTest, LeavesRoomForWhatAnotherProcessFetches) {
  LocalCopies one = copies();
  LocalCopies other = copies();
  free_ = 2 * kSize - 1;
  std::string refused;
  before_fetch_ = [&] {
    refused = message_of<InputError>([&] { (void)hold(other, "b"); });
  };
  EXPECT_TRUE(fs::exists(*hold(one, "a") / "a"));
  EXPECT_HAS(refused, "has no room");
}

TEST_F(LocalCopiesTest, CountsNothingTwiceThatHasComeAlready) {
  LocalCopies one = copies();
  LocalCopies other = copies();
  free_ = 2 * kSize;
  after_fetch_ = [&] { EXPECT_TRUE(fs::exists(*hold(other, "b") / "b")); };
  EXPECT_TRUE(fs::exists(*hold(one, "a") / "a"));
}

TEST_F(LocalCopiesTest, ProvesAnewWhatWasProvedWhereThatIsAskedFor) {
  free_ = 2 * kSize;
  const fs::path file = damaged_copy();
  LocalCopies trusting = copies();
  const auto held = hold(trusting, "a");
  EXPECT_EQ(read_text(file).front(), 'y');
  LocalCopies proving = copies();
  proving.prove_anew();
  const auto beside = [&] { (void)hold(proving, "a"); };
  EXPECT_HAS(message_of<InputError>(beside),
             "s3://bucket/store: its copy on this machine");
  EXPECT_EQ(paths_->with_addresses(file.string()), "s3://bucket/store/a");
}

TEST_F(LocalCopiesTest, FetchesAgainWhatIsDamaged) {
  free_ = 2 * kSize;
  damaged_copy();
  LocalCopies proving = copies();
  proving.prove_anew();
  EXPECT_EQ(read_text(*hold(proving, "a") / "a").front(), 'x');
}

TEST_F(LocalCopiesTest, FetchesAgainWhatIsNotWhatARecordBesideItSays) {
  const Address prefix{"bucket", "store"};
  const auto objects = recorded_store(prefix);
  LocalCopies one = copies();
  wrong_ = {"a", "b", "c"};
  const fs::path dir = *one.hold(prefix, objects, false);
  EXPECT_EQ(read_text(dir / "a").back(), 'x');
  EXPECT_EQ(read_text(dir / "tokenizer/b").back(), 'x');
  EXPECT_NE(read_text(dir / "c").back(), 'x') << "no record knows it";
  EXPECT_EQ(fetches_, 6);
}

TEST_F(LocalCopiesTest, KeepsNoCopyOfWhatIsDamagedInTheStoreAndNamesIt) {
  const Address prefix{"bucket", "store"};
  const auto objects = recorded_store(prefix);
  LocalCopies one = copies();
  // The store's record is fetched first, and the shard later.
  const auto record = one.hold(prefix, {objects[0]}, false);
  const auto shard = [&] { return one.hold(prefix, {objects[1]}, false); };
  always_wrong_ = "a";
  const std::string refused = message_of<InputError>([&] { (void)shard(); });
  EXPECT_HAS(refused, "s3://bucket/store/a: its bytes have come 2 times, now with hash " +
                          hash_of(std::string(kSize - 1, 'x') + "z"));
  EXPECT_HAS(refused, "store.json says " + hash_of(std::string(kSize, 'x')));
  EXPECT_HAS(refused, "the object in the store is damaged");
  always_wrong_.clear();
  EXPECT_EQ(read_text(*shard() / "a").back(), 'x');
  // The address names several stores, and a reader may want another store. So a wrong
  // file is no error here.
  always_wrong_ = "a";
  const fs::path runs = *one.hold({"bucket", ""}, objects, false);
  EXPECT_EQ(read_text(runs / "store/a").back(), 'z');
  always_wrong_.clear();
  LocalCopies later = copies();
  later.prove_anew();
  EXPECT_EQ(read_text(*later.hold({"bucket", ""}, objects, false) / "store/a").back(),
            'x');
}

TEST_F(LocalCopiesTest, AnEarlierCopyThatIsNotWhatTheRecordSaysIsFetchedAgain) {
  const Address prefix{"bucket", "store"};
  const auto objects = recorded_store(prefix);
  const std::string record = std::exchange(record_, std::string(record_.size(), ' '));
  wrong_ = {"a"};
  fs::path dir = *copies().hold(prefix, objects, false);
  EXPECT_NE(read_text(dir / "a").back(), 'x');
  // An earlier version has kept this copy without comparing it with the store's record.
  write_text_durable(dir / "store.json", record);
  fs::path own = dir.parent_path().parent_path() / "copy.json";
  Json kept = read_json(own);
  for (Json& file : kept.at("files")) {
    if (file.at("name").get<std::string>().ends_with("store.json")) {
      file["hash"] = hash_of(record);
    }
  }
  write_text_durable(own, json_text(kept));
  record_ = record;
  dir = *copies().hold(prefix, objects, false);
  EXPECT_EQ(read_text(dir / "a").back(), 'x');
}

TEST_F(LocalCopiesTest, LeavesAShareOfTheDiskFree) {
  capacity_ = 40 * kSize;
  free_ = 3 * kSize - 1;
  const auto refused = [&] {
    LocalCopies one = copies();
    return message_of<InputError>([&] { (void)hold(one, "a"); });
  };
  EXPECT_HAS(refused(), "2.1 MB of the disk are left free for others");
  EXPECT_HAS(refused(), "with XDG_CACHE_HOME for all else");
  free_ = 3 * kSize;
  LocalCopies one = copies();
  EXPECT_TRUE(fs::exists(*hold(one, "a") / "a"));
}

TEST_F(LocalCopiesTest, GivesARunUnderWayWhatElseIsLeftFree) {
  capacity_ = 40 * kSize;
  free_ = kSize;
  LocalCopies one = copies();
  EXPECT_TRUE(fs::exists(*hold(one, "a", /*waits=*/true) / "a"));
}

TEST_F(LocalCopiesTest, LeavesNoLockOfWhatIsGone) {
  const auto locks = [&] {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(dir_ / "cache")) {
      count += entry.path().extension() == ".lock";
    }
    return count;
  };
  free_ = kSize;
  {
    LocalCopies one = copies();
    (void)hold(one, "a");
  }
  EXPECT_EQ(locks(), 2);
  write_file(dir_ / "cache/gone.lock", "");
  LocalCopies other = copies();
  // The copy of "a" is deleted to make room. The free bytes that its deletion gives are
  // not counted.
  before_fetch_ = [&] { free_ += kSize; };
  EXPECT_TRUE(fs::exists(*hold(other, "b") / "b"));
  EXPECT_EQ(locks(), 2);
}

TEST_F(LocalCopiesTest, RemovesWhatKilledProcessesHaveLeft) {
  LocalCopies one = copies();
  free_ = kSize;
  fs::create_directories(dir_ / "cache/deleted/content");
  write_file(dir_ / "cache/deleted/content/a", "of a copy whose record is gone");
  write_file(dir_ / "cache/deleted.lock", "");
  fs::create_directories(dir_ / "cache/begun.part");
  write_file(dir_ / "cache/begun.lock", "");
  (void)hold(one, "a");
  for (const char* name : {"deleted", "deleted.lock", "begun.part", "begun.lock"}) {
    EXPECT_FALSE(fs::exists(dir_ / "cache" / name)) << name;
  }
}

TEST_F(LocalCopiesTest, PassesOverWhatIsNoPathAndRefusesWhatAreNoFiles) {
  std::vector<std::string> keys;
  std::string told;
  CopyRequests requests;
  requests.look = [](const Address&) { return std::nullopt; };
  requests.list = [&](const Address& prefix) {
    std::vector<ObjectInfo> objects;
    for (const std::string& key : keys) objects.push_back({{prefix.bucket, key}, 0, "1"});
    return objects;
  };
  requests.fetch = [](const ObjectInfo&, const fs::path& to) {
    write_file(to, "");
    return std::string();
  };
  const auto copy = [&](const std::string& name) {
    LocalCopies copies(requests, dir_ / "cache", 0,
                       [&](const std::string& line) { told += line + "\n"; });
    return copies.get({"bucket", name});
  };
  const auto refused = [&](const std::string& name) {
    return message_of<InputError>([&] { (void)copy(name); });
  };
  keys = {"in/../a", "in/./b", "in//c"};
  EXPECT_HAS(refused("in"),
             "nor one below it whose key is a path, as that of "
             "s3://bucket/in/../a is not");
  keys.emplace_back("in/d/e");
  const fs::path dir = copy("in");
  EXPECT_HAS(told, "passed over 3 objects");
  EXPECT_HAS(told, "s3://bucket/in/../a");
  EXPECT_TRUE(fs::exists(dir / "d/e"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir), {}), 1);
  keys = {"in/d", "in/d/e/f"};
  EXPECT_HAS(refused("in"),
             "s3://bucket/in/d/e/f: lies below s3://bucket/in/d, which is");
  keys = {"in/" + std::string(256, 'n')};
  EXPECT_HAS(refused("in"), "s3://bucket/in/nnn");
  EXPECT_HAS(refused("in"), "has 256 bytes");
}

TEST_F(LocalCopiesTest, CountsNothingThatAKilledProcessHasPlanned) {
  LocalCopies one = copies();
  free_ = kSize;
  fs::create_directories(dir_ / "cache/killed.part");
  write_file(dir_ / "cache/killed.lock", "");
  write_file(dir_ / "cache/killed.part/planned", std::to_string(kSize) + "\n");
  EXPECT_TRUE(fs::exists(*hold(one, "a") / "a"));
  EXPECT_FALSE(fs::exists(dir_ / "cache/killed.part"));
}

}  // namespace
}  // namespace longhaul::objects
