// Flips bits and cuts files short, anywhere in a checkpoint.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/manifest.h"
#include "tests/faults/faulty_run.h"
#include "tests/faults/tiny_check.h"
#include "tests/faults/tiny_run.h"

namespace longhaul::faults {
namespace {

constexpr uint64_t kSeed = 20240607;

void write(const fs::path& path, std::string_view text) {
  File file = File::create(path);
  file.write(text);
  file.close();
}

struct Damage {
  fs::path file;
  std::string good;
  std::string bad;
  std::string what;
};

Damage draw(const std::vector<fs::path>& files, std::mt19937_64& generator) {
  Damage damage;
  damage.file = files[generator() % files.size()];
  damage.good = read_text(damage.file);
  damage.bad = damage.good;
  const size_t at = generator() % damage.good.size();
  if (generator() % 4 == 0) {
    damage.bad.resize(at);
    damage.what = damage.file.filename().string() + " cut at " + std::to_string(at);
  } else {
    const auto bit = static_cast<unsigned>(generator() % 8);
    damage.bad[at] = static_cast<char>(damage.bad[at] ^ (1U << bit));
    damage.what = damage.file.filename().string() + " bit " + std::to_string(bit) +
                  " of byte " + std::to_string(at);
  }
  return damage;
}

// Returns whether `longhaul verify` would find the damage.
bool verify_finds(const fs::path& step_dir) {
  try {
    checkpoint::CheckpointReader::open(step_dir).verify();
    return false;
  } catch (const InputError&) {
    return true;
  }
}

// The result of reading every tensor without verify(), as a start does.
enum class Loaded { Refused, Right, Wrong };
Loaded load(const fs::path& step_dir) {
  try {
    const auto reader = checkpoint::CheckpointReader::open(step_dir);
    for (const char* kind : kTinyKinds) {
      for (const format::TensorSlice& tensor : tiny_model()) {
        std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
        reader.read(kind, tensor, format::DType::F32,
                    std::as_writable_bytes(std::span(values)));
        for (size_t i = 0; i < values.size(); ++i) {
          if (values[i] != tiny_value(1, 1, kind, tensor.name, static_cast<int64_t>(i))) {
            return Loaded::Wrong;
          }
        }
      }
    }
    return reader.state() == tiny_state(1, 1) && reader.step() == 1 ? Loaded::Right
                                                                    : Loaded::Wrong;
  } catch (const InputError&) {
    return Loaded::Refused;
  }
}

TEST(Damage, OfAThousandFlipsAndCutsEachIsFoundAndNoneIsLoaded) {
  const FaultDir dir;
  run_tiny({dir / "run", {1}, 3, 0}, [](const checkpoint::SaveReport& report, int) {
    ASSERT_EQ(report.error, "");
  });
  const fs::path step_dir = dir / "run" / "checkpoints" / "step_00000001";
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(step_dir)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  ASSERT_EQ(files.size(),
            3U * 2 + 4);  // files of the ranks, the state, two files in hf/, the manifest
  std::sort(files.begin(), files.end());
  ASSERT_FALSE(verify_finds(step_dir));
  ASSERT_EQ(load(step_dir), Loaded::Right);
  std::mt19937_64 generator(kSeed);
  std::set<fs::path> hit;
  size_t refused = 0;
  for (int i = 0; i < 1000; ++i) {
    const Damage damage = draw(files, generator);
    write(damage.file, damage.bad);
    EXPECT_TRUE(verify_finds(step_dir)) << damage.what;
    const Loaded loaded = load(step_dir);
    EXPECT_NE(loaded, Loaded::Wrong) << damage.what;
    refused += loaded == Loaded::Refused ? 1 : 0;
    write(damage.file, damage.good);
    hit.insert(damage.file);
  }
  EXPECT_EQ(hit.size(), files.size());
  EXPECT_GT(refused, 950U);
  EXPECT_FALSE(verify_finds(step_dir));
}

}  // namespace
}  // namespace longhaul::faults
