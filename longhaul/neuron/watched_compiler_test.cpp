#include "longhaul/neuron/watched_compiler.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "longhaul/base/error.h"

namespace longhaul::neuron {
namespace {

class Compiler : public testing::Test {
 protected:
  Compiler() {
    std::string folder = fs::temp_directory_path() / "watched_XXXXXX";
    folder_ = ::mkdtemp(folder.data());
    cache_ = folder_ / "it's a cache";
    fs::create_directories(cache_);
    write(folder_ / "module.mlir", "module @aten::mul {\n// aten::mul(bf16[2,8])\n}\n");
  }
  ~Compiler() override { fs::remove_all(folder_); }

  static void write(const fs::path& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  /// Makes a program of this text and returns its path.
  fs::path program(const std::string& text) const {
    const fs::path path = folder_ / "real";
    write(path, "#!/bin/sh\n" + text);
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }
  /// Compiles as the backend does. Returns what was said and the exit status.
  std::pair<std::string, int> compile(const WatchedCompiler& watched) const {
    const fs::path said = folder_ / "said";
    const std::string call =
        watched.folder().string() + "/neuronx-cc compile " +
        (folder_ / "module.mlir").string() + " --framework XLA --output " +
        (folder_ / "made.neff").string() + " >" + said.string() + " 2>&1";
    const int status = std::system(call.c_str());
    std::ostringstream text;
    text << std::ifstream(said).rdbuf();
    return {text.str(), status};
  }

  fs::path folder_;
  fs::path cache_;
};

TEST_F(Compiler, WhatIsCompiledIsNotedOnceWithItsNameAndBytes) {
  WatchedCompiler watched(program("echo 12345 > $6\n"), cache_, /*only=*/false);
  EXPECT_TRUE(watched.compiled().empty());
  EXPECT_EQ(compile(watched), std::pair(std::string(), 0));
  const auto keys = watched.compiled();
  ASSERT_EQ(keys.size(), 1U);
  EXPECT_EQ(keys[0].name, "aten::mul (bf16[2,8])");
  EXPECT_EQ(keys[0].operation(), "aten::mul");
  EXPECT_EQ(keys[0].bytes, 6);
  EXPECT_GE(keys[0].seconds, 0.0);
  EXPECT_TRUE(watched.compiled().empty());
  EXPECT_TRUE(fs::is_empty(cache_));
}

TEST_F(Compiler, AMissIsRefusedByNameAndNothingRuns) {
  WatchedCompiler watched(program("touch " + (folder_ / "ran").string() + "\n"), cache_,
                          /*only=*/true);
  const auto [said, status] = compile(watched);
  EXPECT_NE(status, 0);
  EXPECT_NE(said.find("aten::mul"), said.npos) << said;
  EXPECT_NE(said.find("run.compile_cache"), said.npos) << said;
  EXPECT_FALSE(fs::exists(folder_ / "ran"));
  EXPECT_TRUE(watched.compiled().empty());
}

TEST_F(Compiler, AFailureIsSaidWithTheCompilersWordsAndTheOperation) {
  WatchedCompiler watched(program("echo NCC_EMOD025 >&2; exit 3\n"), cache_, false);
  const auto [said, status] = compile(watched);
  EXPECT_NE(status, 0);
  EXPECT_NE(said.find("NCC_EMOD025"), said.npos) << said;
  EXPECT_NE(said.find("aten::mul"), said.npos) << said;
}

TEST_F(Compiler, ACacheThatTakesNothingEndsTheCompilationByName) {
  WatchedCompiler watched(program("echo 12345 > $6\n"), cache_, false);
  fs::remove_all(cache_);
  const auto [said, status] = compile(watched);
  EXPECT_NE(status, 0);
  EXPECT_NE(said.find(cache_.string()), said.npos) << said;
  EXPECT_NE(said.find("aten::mul"), said.npos) << said;
}

TEST_F(Compiler, ItsFolderIsGoneWithIt) {
  fs::path folder;
  {
    const WatchedCompiler watched(program("true\n"), cache_, false);
    folder = watched.folder();
    EXPECT_TRUE(fs::exists(folder));
  }
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(Compiler, ACacheThatCannotBeIsRefusedWithTheReason) {
  const auto refusal = [](const fs::path& cache, bool only) -> std::string {
    try {
      check_cache(cache, only);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(folder_ / "new" / "cache", false), "");
  EXPECT_TRUE(fs::is_empty(folder_ / "new" / "cache"));
  const std::string file = refusal(folder_ / "module.mlir", false);
  EXPECT_NE(file.find("run.compile_cache_dir"), file.npos) << file;
  EXPECT_NE(file.find("Not a directory"), file.npos) << file;
  EXPECT_NE(refusal("/proc/cache", false), "");
  EXPECT_EQ(refusal(folder_, true), "");
  const std::string absent = refusal(folder_ / "absent", true);
  EXPECT_NE(absent.find("longhaul compile"), absent.npos) << absent;
}

}  // namespace
}  // namespace longhaul::neuron
