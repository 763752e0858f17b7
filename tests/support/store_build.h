#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/data/store/build/build_store.h"
#include "longhaul/data/store/resumable_build.h"
#include "longhaul/data/store/token_store.h"
#include "tests/support/data_files.h"
#include "tests/support/small_tokenizer.h"

namespace longhaul::data {

inline std::string line(const std::string& text) {
  return Json{{"text", text}}.dump() + "\n";
}

/// Returns the content of every file below a directory, by its path in the directory.
inline std::map<std::string, std::string> contents(const fs::path& dir) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (entry.is_regular_file()) {
      files[fs::relative(entry.path(), dir).string()] = read_text(entry.path());
    }
  }
  return files;
}

/// The base of tests that build stores of a corpus in a directory.
class BuildTest : public ::testing::Test {
 protected:
  BuildTest() : tokenizer(dir.write("tokenizer.json", "{}"), true, false) {}

  BuildOptions options(const std::string& corpus, const std::string& out = "store",
                       const std::string& name = "corpus.jsonl") {
    BuildOptions result = options_for(dir.write(name, corpus), out);
    return result;
  }
  BuildOptions options_for(const fs::path& input, const std::string& out = "store") {
    BuildOptions result;
    result.inputs.arguments = {input.string()};
    result.out = dir / out;
    result.threads = 2;
    return result;
  }
  static std::string many_documents(int count) {
    std::string corpus;
    for (int i = 0; i < count; ++i) {
      corpus += line("document " + std::to_string(i) +
                     std::string(static_cast<size_t>(i % 300), 'x'));
    }
    return corpus;
  }
  /// Returns the texts of a store's documents, special tokens spelled out.
  std::vector<std::string> texts(const fs::path& path) {
    const TokenStore store(path);
    std::vector<std::string> result;
    int64_t begin = 0;
    for (int64_t d = 0; d < store.info().documents; ++d) {
      const int64_t end = store.document_end(d);
      std::vector<int32_t> tokens(static_cast<size_t>(end - begin));
      store.read(begin, tokens);
      result.push_back(tokenizer.decode({tokens.begin(), tokens.end()}, false));
      begin = end;
    }
    return result;
  }

  TestDirectory dir;
  ByteTokenizer tokenizer;
};

}  // namespace longhaul::data
