#include <gtest/gtest.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/mirror/mirror_reader.h"
#include "longhaul/checkpoint/mirror/mirror_writer.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/run/files.h"
#include "tests/support/mirror_directory.h"

namespace longhaul::checkpoint {
namespace {

using testing::DirectoryStore;
using testing::in_step;
using testing::kMirrorRanks;
using testing::kMirrorRun;
using testing::list_mirror;
using testing::mirrored;
using testing::saved;
using testing::steps_of;
using testing::TempDir;
using testing::write_file;

std::vector<int64_t> thin_out(DirectoryStore& store, int64_t keep, int64_t milestones) {
  MirrorListing listing(store);
  return thin_out_mirror(listing, keep, milestones);
}

TEST(Mirror, NamesManifestsByTheirAttempt) {
  EXPECT_EQ(mirror_manifest_name(12), "manifest.a12.json");
  EXPECT_EQ(mirror_manifest_attempt("manifest.a12.json"), 12);
  for (const char* other : {"manifest.json", "manifest.a.json", "manifest.a1.json.tmp",
                            "superseded.a1.json", "a1_rank_00000.json"}) {
    EXPECT_EQ(mirror_manifest_attempt(other), std::nullopt) << other;
  }
}

TEST(Mirror, HasTheFilesUnderTheirNamesAndTheManifestLast) {
  const TempDir dir;
  DirectoryStore store;
  mirrored(store, dir.path(), 5, 1);
  EXPECT_TRUE(store.has("step_00000005/a1_rank_00000.safetensors"));
  EXPECT_TRUE(store.has("step_00000005/a1_rank_00001.json"));
  EXPECT_TRUE(store.has("step_00000005/a1_state.json"));
  EXPECT_TRUE(store.has("step_00000005/a1_hf/config.json"));
  EXPECT_EQ(store.order.back(), "step_00000005/manifest.a1.json");
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
}

TEST(Mirror, SendsACheckpointOfMoreRanksThanThereAre) {
  const TempDir dir;
  DirectoryStore store;
  const fs::path path = saved(dir.path(), 5, 1);
  const Manifest manifest = Manifest::read(path);
  MirrorListing listing(store);
  begin_mirror_step(listing, manifest, 2);
  EXPECT_EQ(send_mirror_files(store, path, manifest, 0, 1), manifest.total_bytes());
  end_mirror_step(listing, manifest, 0.0);
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
}

TEST(Mirror, WritesNoManifestWhereARankHasNotSentItsFiles) {
  const TempDir dir;
  DirectoryStore store;
  const fs::path path = saved(dir.path(), 5, 1);
  const Manifest manifest = Manifest::read(path);
  send_mirror_files(store, path, manifest, 0, kMirrorRanks);
  MirrorListing listing(store);
  EXPECT_HAS(
      message_of<TemporaryError>([&] { end_mirror_step(listing, manifest, 0.0); }),
      "step 5 is not whole in s3://bucket/run after 0 s: a1_rank_00001.safetensors");
  EXPECT_TRUE(list_mirror(store).empty());
}

TEST(Mirror, ADamagedFileIsNotMirrored) {
  const TempDir dir;
  DirectoryStore store;
  const fs::path path = saved(dir.path(), 5, 1);
  const Manifest manifest = Manifest::read(path);
  const fs::path data = path / "a1_rank_00000.safetensors";
  std::string bytes = longhaul::read_text(data);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(data, bytes);
  EXPECT_HAS(message_of<InputError>(
                 [&] { send_mirror_files(store, path, manifest, 0, kMirrorRanks); }),
             "the file is damaged, and step 5 is not mirrored");
  EXPECT_FALSE(store.has("step_00000005/a1_rank_00000.safetensors"));
}

TEST(Mirror, TheHighestAttemptWinsWhoseFilesAreAllThere) {
  const TempDir first;
  const TempDir second;
  DirectoryStore store;
  mirrored(store, first.path(), 5, 1);
  const std::string name = "step_00000005/manifest.a1.json";
  const std::string older = *store.read_text(name);
  mirrored(store, second.path(), 5, 3);
  // The mirror looks as if the start had been killed before it removed this manifest.
  store.put_text(older, name);
  ASSERT_EQ(list_mirror(store).size(), 1U);
  EXPECT_EQ(list_mirror(store)[0].attempt, 3);
  EXPECT_EQ(MirrorListing(store).highest_attempt(), 3);
  fs::resize_file(store.path("step_00000005/a3_rank_00001.safetensors"), 7);
  std::vector<std::string> skipped;
  const auto found = list_mirror(store, &skipped);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].attempt, 1);
  ASSERT_EQ(skipped.size(), 1U);
  EXPECT_HAS(skipped[0], "manifest.a3.json passed over: a3_rank_00001.safetensors has 7");
  // highest_attempt() counts the attempt of an incomplete upload too.
  store.put_text("x", "step_00000009/a7_state.json");
  EXPECT_EQ(MirrorListing(store).highest_attempt(), 7);
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
}

TEST(Mirror, AStoreThatRefusesIsNoCheckpointThatIsPassedOver) {
  const TempDir dir;
  DirectoryStore store;
  for (const int64_t step : {5, 6}) mirrored(store, dir.path(), step, 1);
  store.denied = "step_00000006/manifest.a1.json";
  EXPECT_HAS(message_of<InputError>([&] { list_mirror(store); }), "no permission");
  write_file(store.path(store.denied), "{");
  store.denied.clear();
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
}

TEST(Mirror, AStepThatIsGoneBackOnIsFoundByNoStart) {
  const TempDir dir;
  DirectoryStore store;
  mirrored(store, dir.path(), 5, 1);
  mirrored(store, dir.path(), 9, 1);
  const TempDir other;
  mirrored(store, other.path(), 9, 4);
  // The run goes back to step 5, and saves step 7 as attempt 2. The mirror keeps the
  // files of attempt 4, which is later.
  const TempDir again;
  mirrored(store, again.path(), 7, 2);
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{9, 7, 5}));
  EXPECT_TRUE(store.has("step_00000009/superseded.a1.json"));
  EXPECT_EQ(list_mirror(store)[0].attempt, 4);
  MirrorListing listing(store);
  EXPECT_EQ(supersede_mirror(listing, 5, 4), (std::vector<int64_t>{9, 7}));
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
}

TEST(Mirror, WhatAPastHasLeftUnderTheSameNamesIsGoneBeforeNewFilesCome) {
  const TempDir dir;
  DirectoryStore store;
  const fs::path path = mirrored(store, dir.path(), 5, 1);
  const Manifest manifest = Manifest::read(path);
  MirrorListing listing(store);
  begin_mirror_step(listing, manifest, 1);
  EXPECT_EQ(store.removed.front(), "step_00000005/manifest.a1.json");
  EXPECT_TRUE(store.list("step_00000005").empty());
}

const std::string kAnotherRun(32, 'b');

/// A directory of checkpoints, whose starts claim the mirror. A copy of the object stands
/// for a copy of the directory.
struct Place {
  run::CheckpointsMarker marker;
  std::vector<std::string> given_up = {};

  /// Claims the mirror as a start does, and returns the mirror's new name.
  std::string claim(DirectoryStore& store) {
    MirrorClaim claim{marker, given_up,
                      [this](const std::string& name) { marker.names.push_back(name); }};
    claim_mirror(store, claim);
    EXPECT_EQ(claim.marker, marker);
    prove_claim(store, claim);
    return marker.names.back();
  }
  std::string refused(DirectoryStore& store) {
    const run::CheckpointsMarker before = marker;
    std::string said = message_of<InputError>([&] { claim(store); });
    EXPECT_EQ(marker, before);
    return said;
  }
};

std::string name_of(DirectoryStore& store) { return read_mirror_owner(store)->name; }

TEST(Mirror, IsOfOneRunOnly) {
  DirectoryStore store;
  Place self{{kMirrorRun, 1, {}}};
  EXPECT_FALSE(read_mirror_owner(store));
  self.claim(store);
  const std::string name = self.claim(store);
  EXPECT_EQ(read_mirror_owner(store)->run, kMirrorRun);
  EXPECT_EQ(read_mirror_owner(store)->attempt, 1);
  EXPECT_HAS(Place({{kAnotherRun, 2, {}}}).refused(store),
             "holds the checkpoints of another run (" + kMirrorRun);
  EXPECT_EQ(name_of(store), name);
}

TEST(Mirror, AnEarlierStartIsRefusedOnceALaterOneWrites) {
  DirectoryStore store;
  Place first{{kMirrorRun, 2, {}}};
  first.claim(store);
  Place later = first;
  later.marker.attempt = 5;
  const std::string name = later.claim(store);
  EXPECT_HAS(first.refused(store), "is written by start 5 of this run, of which");
  MirrorClaim stale{first.marker, {}, {}};
  message_of<InputError>([&] { prove_claim(store, stale); });
  EXPECT_EQ(name_of(store), name);
}

TEST(Mirror, OfADirectoryAndItsCopyOnlyTheOneThatWritesFirstGoesOnWhateverItsNumber) {
  for (const int number : {1, 2, 7}) {
    DirectoryStore store;
    Place here{{kMirrorRun, 1, {}}};
    here.claim(store);
    Place copy = here;
    copy.marker.attempt = 2;
    copy.claim(store);
    here.marker.attempt = number;
    EXPECT_HAS(here.refused(store), "or one in another directory");
    // The user moves the run back to `here` on purpose. Then `copy` is the place that the
    // run has left.
    here.marker.names.push_back(name_of(store));
    const std::string name = here.claim(store);
    copy.marker.attempt = number + 2;
    copy.refused(store);
    EXPECT_EQ(name_of(store), name);
  }
}

TEST(Mirror, ABackupThatWasMadeWhileTheRunWentOnDoesNotTakeIt) {
  DirectoryStore store;
  Place place{{kMirrorRun, 1, {}}};
  place.claim(store);
  Place backup = place;
  place.claim(store);  // the next step of the same start claims the mirror again
  EXPECT_HAS(backup.refused(store), "does not know");
}

TEST(Mirror, AStartThatWasKilledWhileItClaimedTheMirrorShutsNobodyOut) {
  DirectoryStore store;
  Place place{{kMirrorRun, 1, {}}};
  place.claim(store);
  // One start notes a name in the marker and is killed before the mirror has the name.
  // Another start gives the mirror its name and is killed right afterwards.
  place.marker.names.push_back(run::new_identity());
  place.claim(store);
  place.claim(store);
}

TEST(Mirror, OneOfAnOlderReleaseIsTakenByTheSameRun) {
  DirectoryStore store;
  store.put_text(R"({"run": ")" + kMirrorRun + R"(", "attempt": 2})",
                 run::kCheckpointsOwnerFile);
  Place({{kAnotherRun, 3, {}}}).refused(store);
  Place({{kMirrorRun, 1, {}}}).refused(store);
  Place({{kMirrorRun, 3, {}}}).claim(store);
}

TEST(Mirror, ThatCannotTellItsWriterNamesTheFileToDelete) {
  DirectoryStore store;
  const std::string unnamed =
      R"({"run": ")" + kMirrorRun + R"(", "attempt": 1, "name": "me"})";
  for (const std::string& text :
       {std::string("half {"), std::string(R"({"run": "me", "attempt": 1})"), unnamed}) {
    store.put_text(text, run::kCheckpointsOwnerFile);
    EXPECT_HAS(Place({{kMirrorRun, 1, {}}}).refused(store),
               "delete it: the steps of the mirror stay");
  }
}

TEST(Mirror, WithoutItsWritersNameKeepsNothingOfLaterStartsThanTheOneThatTakesIt) {
  const TempDir dir;
  DirectoryStore store;
  mirrored(store, dir.path(), 4, 3);
  mirrored(store, dir.path(), 5, 1);
  mirrored(store, dir.path(), 9, 3);
  Place({{kMirrorRun, 2, {}}}).claim(store);
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
}

TEST(Mirror, ARunThatBeginsAnewSupersedesItsOwnCheckpointsAndNoOthers) {
  const TempDir dir;
  DirectoryStore store;
  mirrored(store, dir.path(), 5, 1);
  Place place{{kMirrorRun, 1, {}}};
  place.claim(store);
  // The run has gone on in another directory. So a new run in the old directory does not
  // get the mirror.
  Place elsewhere = place;
  elsewhere.claim(store);
  place.marker.run = kAnotherRun;
  place.given_up = {kMirrorRun};
  EXPECT_HAS(place.refused(store), "holds the checkpoints of another run");
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
  elsewhere.marker.run = kAnotherRun;
  elsewhere.claim(store);
  EXPECT_EQ(read_mirror_owner(store)->run, kAnotherRun);
  EXPECT_TRUE(steps_of(store).empty());
}

TEST(Mirror, ARunThatBeginsAnewBecauseItsCheckpointsAreLostTakesTheMirrorOfWhatItGaveUp) {
  for (const bool named : {true, false}) {
    const TempDir dir;
    DirectoryStore store;
    mirrored(store, dir.path(), 5, 1);
    Place({{kMirrorRun, 1, {}}}).claim(store);
    if (!named) store.remove(run::kCheckpointsOwnerFile);
    Place anew{{kAnotherRun, 3, {}}, {std::string(32, 'c')}};
    if (named) {
      EXPECT_HAS(anew.refused(store), "of another run");
    }
    anew.given_up.push_back(kMirrorRun);
    anew.claim(store);
    EXPECT_TRUE(steps_of(store).empty());
  }
}

TEST(Mirror, AStepThatIsWholeAgainHasOneManifest) {
  DirectoryStore store;
  for (const int attempt : {3, 1}) mirrored(store, TempDir().path(), 5, attempt);
  EXPECT_EQ(MirrorListing(store).manifests(5), (std::vector<int>{1}));
}

TEST(Mirror, AFetchedCheckpointIsTheOneThatWasSaved) {
  const TempDir dir;
  const TempDir back;
  DirectoryStore store;
  const fs::path path = mirrored(store, dir.path(), 5, 1);
  const fs::path fetched = fetch_checkpoint(store, list_mirror(store)[0], back.path());
  EXPECT_EQ(fetched, back / "step_00000005");
  EXPECT_EQ(longhaul::read_text(fetched / run::kManifestFile),
            longhaul::read_text(path / run::kManifestFile));
  EXPECT_GT(CheckpointReader::open(fetched).verify(), 0U);
  const auto entries = list_checkpoints(back.path());
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_TRUE(entries[0].valid) << entries[0].problem;
  EXPECT_HAS(message_of<InputError>(
                 [&] { fetch_checkpoint(store, list_mirror(store)[0], back.path()); }),
             "is there already");
}

TEST(Mirror, AFetchedFileIsComparedWithItsHash) {
  const TempDir dir;
  const TempDir back;
  DirectoryStore store;
  mirrored(store, dir.path(), 5, 1);
  const std::string name = "step_00000005/a1_rank_00001.safetensors";
  std::string bytes = *store.read_text(name);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  store.put_text(bytes, name);
  const MirrorStep step = list_mirror(store)[0];
  EXPECT_HAS(message_of<InputError>([&] { fetch_checkpoint(store, step, back.path()); }),
             "a1_rank_00001.safetensors: its bytes have hash");
  EXPECT_TRUE(fs::is_empty(back.path()));
}

TEST(Mirror, AFileThatCameInWrongIsFetchedAgain) {
  const TempDir dir;
  const TempDir back;
  DirectoryStore store;
  mirrored(store, dir.path(), 5, 1);
  store.flipped = "step_00000005/a1_rank_00001.safetensors";
  const fs::path fetched = fetch_checkpoint(store, list_mirror(store)[0], back.path());
  EXPECT_EQ(store.flipped, "");
  EXPECT_GT(CheckpointReader::open(fetched).verify(), 0U);
}

TEST(Mirror, AHalfFetchedCheckpointIsNone) {
  const TempDir dir;
  const TempDir back;
  DirectoryStore store;
  mirrored(store, dir.path(), 5, 1);
  const MirrorStep step = list_mirror(store)[0];
  store.refused = "step_00000005/a1_rank_00001.json";
  message_of<TemporaryError>([&] { fetch_checkpoint(store, step, back.path()); });
  EXPECT_TRUE(list_checkpoints(back.path()).empty());
  // Files that a killed start has left do no harm, whether they are of this step or of
  // another step.
  write_file(back / ".fetched_step_00000004/a1_state.json", "half");
  write_file(back / ".fetched_step_00000005/a1_state.json", "half");
  write_file(back / "step_00000005/a1_state.json", "half");
  EXPECT_FALSE(has_committed(back.path()));
  store.refused.clear();
  bool counted = true;
  fetch_checkpoint(store, step, back.path(), {},
                   [&] { counted = has_committed(back.path()); });
  EXPECT_FALSE(counted);
  EXPECT_TRUE(find_latest(back.path()).has_value());
  EXPECT_FALSE(fs::exists(back / ".fetched_step_00000004"));
}

TEST(Mirror, IsThinnedOutByItsOwnRule) {
  const TempDir dir;
  DirectoryStore store;
  for (int64_t step = 1; step <= 6; ++step) mirrored(store, dir.path(), step, 1);
  EXPECT_TRUE(thin_out(store, 0, 0).empty());
  EXPECT_EQ(thin_out(store, 4, 0), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(thin_out(store, 2, 3), (std::vector<int64_t>{4}));
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{6, 5, 3}));
  EXPECT_TRUE(store.list("step_00000004").empty());
  // The manifest is removed first.
  const auto first = std::ranges::find_if(store.removed, [](const std::string& name) {
    return name.starts_with(in_step(4, ""));
  });
  ASSERT_NE(first, store.removed.end());
  EXPECT_EQ(*first, "step_00000004/manifest.a1.json");
}

TEST(Mirror, WhatAListingHasChangedItKnows) {
  const TempDir dir;
  DirectoryStore store;
  for (int64_t step = 1; step <= 5; ++step) mirrored(store, dir.path(), step, 1);
  MirrorListing listing(store);
  EXPECT_TRUE(listing.is_whole(2));
  listing.remove(2, "a1_state.json");
  EXPECT_FALSE(listing.is_whole(2));
  EXPECT_EQ(supersede_mirror(listing, 4, 1), (std::vector<int64_t>{5}));
  EXPECT_EQ(thin_out_mirror(listing, 1, 3), (std::vector<int64_t>{2, 1}));
  const MirrorListing now(store);
  EXPECT_EQ(listing.steps(), now.steps());
  for (const int64_t step : now.steps()) {
    EXPECT_EQ(listing.objects(step), now.objects(step)) << step;
  }
}

TEST(Mirror, AStepThatIsNotWholeProtectsTheOlderOnes) {
  const TempDir dir;
  DirectoryStore store;
  for (int64_t step = 1; step <= 3; ++step) mirrored(store, dir.path(), step, 1);
  store.remove("step_00000003/a1_rank_00000.safetensors");
  // An incomplete upload below a whole step is deleted, and one above it stays.
  store.put_text("half", in_step(0, "a1_state.json"));
  store.put_text("half", in_step(9, "a1_state.json"));
  EXPECT_EQ(thin_out(store, 2, 0), (std::vector<int64_t>{0}));
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{2, 1}));
  EXPECT_TRUE(store.has("step_00000009/a1_state.json"));
}

TEST(Mirror, WhatAnotherRunHasSavedThereIsNeitherTakenNorDeleted) {
  const TempDir dir;
  DirectoryStore store;
  for (const int64_t step : {2, 3, 5, 9}) mirrored(store, dir.path(), step, 1);
  for (const int64_t step : {2, 9}) {
    const std::string name = mirror_name(step, "manifest.a1.json");
    Manifest manifest =
        Manifest::from_json(parse_json(*store.read_text(name), name), name);
    manifest.run = testing::kStrangersRun;
    store.put_text(json_text(manifest.to_json()), name);
  }
  MirrorListing listing(store, testing::kOwnersRun);
  std::vector<std::string> skipped;
  EXPECT_FALSE(listing.read(9, &skipped));
  ASSERT_EQ(skipped.size(), 1U);
  EXPECT_HAS(skipped[0], "it was saved by run " + testing::kStrangersRun +
                             ", and this is the mirror of run " + testing::kOwnersRun);
  EXPECT_TRUE(listing.read(5));
  EXPECT_EQ(thin_out_mirror(listing, 1, 0), std::vector<int64_t>{3});
  EXPECT_EQ(supersede_mirror(listing, 4, 9), std::vector<int64_t>{5});
  EXPECT_TRUE(store.has("step_00000002/manifest.a1.json"));
  EXPECT_TRUE(store.has("step_00000009/manifest.a1.json"));
}

}  // namespace
}  // namespace longhaul::checkpoint
