#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/tokenizer/tokenizer.h"

// bench_tokenize.py drives it.
//   encode TOKENIZER TEXTS PASSES THREADS IDS   prints the seconds of each pass
// TEXTS: per text its length as little-endian u32 and its bytes. IDS: per text a u32
// count and the ids of the last pass.
namespace {

using namespace longhaul;
using Clock = std::chrono::steady_clock;

std::vector<std::string> read_texts(const char* path) {
  const std::string file = read_text(path, uint64_t{1} << 32);
  std::vector<std::string> texts;
  for (size_t pos = 0; pos + 4 <= file.size();) {
    uint32_t size = 0;
    std::memcpy(&size, file.data() + pos, 4);
    texts.push_back(file.substr(pos + 4, size));
    pos += 4 + size_t{size};
  }
  return texts;
}

/// Times passes of all threads. Each thread has its own share of the texts, whole ones
/// that follow each other, and goes through it `passes` times.
int encode(char** arguments) {
  const auto tokenizer = tokenizer::Tokenizer::load(arguments[0]);
  const std::vector<std::string> texts = read_texts(arguments[1]);
  const size_t passes = std::stoul(arguments[2]);
  const size_t threads = std::stoul(arguments[3]);
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  std::vector<size_t> cuts{0};
  size_t before = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    before += texts[i].size();
    if (cuts.size() < threads && before >= bytes * cuts.size() / threads) {
      cuts.push_back(i + 1);
    }
  }
  while (cuts.size() <= threads) cuts.push_back(texts.size());
  std::vector<std::vector<tokenizer::TokenId>> ids(texts.size());
  for (size_t pass = 0; pass < passes; ++pass) {
    const auto work = [&](size_t thread) {
      for (size_t i = cuts[thread]; i < cuts[thread + 1]; ++i) {
        ids[i].clear();
        tokenizer->encode(texts[i], false, ids[i]);
      }
    };
    const auto start = Clock::now();
    std::vector<std::thread> others;
    for (size_t i = 1; i < threads; ++i) others.emplace_back(work, i);
    work(0);
    for (std::thread& other : others) other.join();
    fmt::print("{:.6f}\n", std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::string all;
  for (const auto& some : ids) {
    const auto count = static_cast<uint32_t>(some.size());
    all.append(reinterpret_cast<const char*>(&count), sizeof(count));
    all.append(reinterpret_cast<const char*>(some.data()), some.size() * sizeof(some[0]));
  }
  File file = File::create(arguments[4]);
  file.write(all);
  file.close();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string verb = argc > 1 ? argv[1] : "";
    if (verb == "encode" && argc == 7) return encode(argv + 2);
    fmt::print(stderr,
               "usage: bench_tokenize encode TOKENIZER TEXTS PASSES THREADS IDS\n");
    return 2;
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_code();
  }
}
