#include "longhaul/objects/pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/data_files.h"
#include "tests/support/memory_objects.h"

namespace longhaul::data {
namespace {

constexpr uint64_t kSize = 1000;
const objects::Address kPrefix{"bucket", "store"};

/// Ten large objects and a small one. A copy of a large one takes kSize.
class PiecesTest : public ::testing::Test {
 protected:
  PiecesTest() {
    memory.put("store/small.json", "{}");
    for (int i = 0; i < 10; ++i) {
      memory.put("store/" + name(i), std::string(kSize, static_cast<char>('0' + i)));
    }
  }
  static std::string name(int number) { return "large_" + std::to_string(number); }

  std::shared_ptr<objects::LocalCopies> copies(uint64_t most_bytes) {
    return std::make_shared<objects::LocalCopies>(memory.copy_requests(), dir / "cache",
                                                  most_bytes);
  }
  objects::Pieces pieces(std::shared_ptr<objects::LocalCopies> of) {
    return {std::move(of), kPrefix, memory.list(kPrefix, true),
            [](const std::string& object) { return object.starts_with("large"); }};
  }
  /// Returns how often an object was fetched.
  int64_t fetched(int number) const {
    return std::ranges::count(memory.requests(), "store/" + name(number),
                              &MemoryObjects::Request::key);
  }
  uint64_t bytes_on_disk() const {
    uint64_t bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(dir / "cache")) {
      if (entry.path().filename().string().starts_with("large")) {
        bytes += entry.file_size();
      }
    }
    return bytes;
  }

  TestDirectory dir;
  MemoryObjects memory;
};

TEST_F(PiecesTest, CopiesTheSmallObjectsAtOnceAndOthersWhenTheyAreWanted) {
  const objects::Pieces store = pieces(copies(0));
  EXPECT_EQ(read_text(store.dir() / "small.json"), "{}");
  EXPECT_FALSE(fs::exists(store.dir() / name(3)));
  EXPECT_EQ(store.size(name(3)), kSize);
  EXPECT_EQ(store.size("another"), std::nullopt);
  const auto held = store.hold({name(3), name(4)});
  EXPECT_EQ(read_text(*held / name(3)), std::string(kSize, '3'));
  EXPECT_EQ(read_text(*held / name(4)), std::string(kSize, '4'));
  EXPECT_EQ(fetched(3), 1);
  EXPECT_EQ(fetched(5), 0);
  EXPECT_HAS(input_error([&] { (void)store.hold({"another"}); }),
             "s3://bucket/store/another");
}

TEST_F(PiecesTest, KeepsWhatIsHeldAndLetsTheRestGoForRoom) {
  const auto cache = copies(2 * kSize + 100);
  const objects::Pieces store = pieces(cache);
  auto held = store.hold({name(0)});
  for (int i = 1; i < 10; ++i) {
    const auto next = store.hold({name(i)});
    EXPECT_TRUE(fs::exists(*held / name(i - 1)));
    EXPECT_LE(bytes_on_disk(), 2 * kSize);
    held = next;
  }
  // A copy that is still on the disk is used again.
  (void)store.hold({name(8)});
  EXPECT_EQ(fetched(8), 1);
  (void)store.hold({name(0)});
  EXPECT_EQ(fetched(0), 2);
}

TEST_F(PiecesTest, RefusesWhatDoesNotFitBesideWhatIsHeld) {
  const auto cache = copies(2 * kSize + 100);
  const objects::Pieces store = pieces(cache);
  const auto first = store.hold({name(0)});
  const auto second = store.hold({name(1)});
  const std::vector<objects::ObjectInfo> third = {
      *memory.look({"bucket", "store/" + name(2)})};
  const std::string message =
      input_error([&] { (void)cache->hold(kPrefix, third, false); });
  EXPECT_HAS(message, "s3://bucket/store");
  EXPECT_HAS(message, "data.cache_gb");
  EXPECT_EQ(bytes_on_disk(), 2 * kSize);
  EXPECT_EQ(fetched(2), 0);
}

TEST_F(PiecesTest, WaitsForTheRoomThatAnotherUserLetsGo) {
  const auto cache = copies(kSize + 100);
  const objects::Pieces store = pieces(cache);
  auto first = store.hold({name(0)});
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    first.reset();
  });
  const auto second = store.hold({name(1)});
  other.join();
  EXPECT_EQ(read_text(*second / name(1)), std::string(kSize, '1'));
}

TEST_F(PiecesTest, StopsWaitingForAnotherFetchWhereItIsTold) {
  // The second LocalCopies object takes a lock of its own, as another process does.
  const auto cache = copies(0);
  const objects::Pieces store = pieces(cache);
  objects::CopyRequests requests = memory.copy_requests();
  requests.go_on = [] { throw TemporaryError("objects", "told to end"); };
  const auto told = std::make_shared<objects::LocalCopies>(requests, dir / "cache");
  const objects::Pieces other = pieces(told);
  int refused = 0;
  memory.before_read = [&](uint64_t) {
    try {
      (void)other.hold({name(3)});
    } catch (const TemporaryError&) {
      ++refused;
    }
  };
  (void)store.hold({name(3)});
  EXPECT_EQ(refused, 1);
}

TEST_F(PiecesTest, FetchesAheadOnAThreadAndOnlyOnce) {
  const objects::Pieces store = pieces(copies(0));
  store.fetch_ahead({name(7)});
  for (int i = 0; i < 2000 && fetched(7) == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  (void)store.hold({name(7)});
  store.fetch_ahead({name(7)});
  (void)store.hold({name(7)});
  EXPECT_EQ(fetched(7), 1);
}

TEST_F(PiecesTest, NamesAnObjectThatWasReplacedSinceItWasListed) {
  const objects::Pieces store = pieces(copies(0));
  memory.put("store/" + name(6), std::string(kSize, 'x'));
  EXPECT_HAS(input_error([&] { (void)store.hold({name(6)}); }),
             "s3://bucket/store/large_6");
  EXPECT_NO_THROW((void)store.hold({name(5)}));
}

TEST_F(PiecesTest, ReservesRoomBesideWhatIsHeld) {
  const auto cache = copies(4 * kSize);
  const objects::Pieces store = pieces(cache);
  auto first = store.reserve(2 * kSize);
  EXPECT_HAS(input_error([&] { (void)store.reserve(2 * kSize); }), "data.cache_gb");
  first.reset();
  EXPECT_NO_THROW((void)store.reserve(2 * kSize));
}

TEST_F(PiecesTest, DeletesWhatAKilledFetchHasLeft) {
  const auto cache = copies(2 * kSize + 100);
  const objects::Pieces store = pieces(cache);
  fs::create_directories(dir / "cache/killed.part");
  dir.write("cache/killed.lock", "");
  dir.write("cache/killed.part/planned", "2000\n");
  dir.write("cache/killed.part/large", "x");
  (void)store.hold({name(1)});
  EXPECT_FALSE(fs::exists(dir / "cache/killed.part"));
}

}  // namespace
}  // namespace longhaul::data
