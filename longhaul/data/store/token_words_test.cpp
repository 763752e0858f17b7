#include "longhaul/data/store/token_words.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace longhaul::data {
namespace {

/// Memory whose last byte is followed by a byte that cannot be read.
class BeforeNothing {
 public:
  BeforeNothing() : page_(static_cast<size_t>(::sysconf(_SC_PAGESIZE))) {
    void* const at = ::mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return;
    begin_ = static_cast<std::byte*>(at);
    ::mprotect(begin_ + page_, page_, PROT_NONE);
  }
  ~BeforeNothing() {
    if (begin_ != nullptr) ::munmap(begin_, 2 * page_);
  }
  BeforeNothing(const BeforeNothing&) = delete;
  BeforeNothing& operator=(const BeforeNothing&) = delete;

  bool there() const { return begin_ != nullptr; }
  const std::byte* put_last(const std::vector<std::byte>& bytes) {
    return std::copy(bytes.begin(), bytes.end(), begin_ + page_ - bytes.size()) -
           static_cast<std::ptrdiff_t>(bytes.size());
  }

 private:
  size_t page_;
  std::byte* begin_ = nullptr;
};

TEST(TokenWords, AnyNumberReadsBackAndNothingBehindTheLastIsTouched) {
  BeforeNothing memory;
  ASSERT_TRUE(memory.there());
  for (const auto& [size, limit] : std::vector<std::pair<int, tokenizer::TokenId>>{
           {2, 65535}, {3, (1 << 24) - 1}, {4, INT32_MAX}}) {
    for (size_t count = 0; count < 70; ++count) {
      std::vector<tokenizer::TokenId> tokens(count);
      uint32_t random = 1;
      for (tokenizer::TokenId& token : tokens) {
        random = random * 1664525 + 1013904223;
        token =
            static_cast<tokenizer::TokenId>((random >> 1) % static_cast<uint32_t>(limit));
      }
      // The largest token is put at each index once, so that the test covers all of them.
      for (size_t largest = 0; largest < std::max<size_t>(count, 1); ++largest) {
        std::vector<tokenizer::TokenId> wanted = tokens;
        if (count > 0) wanted[largest] = limit;
        std::vector<std::byte> bytes;
        append_tokens(wanted, size, bytes);
        ASSERT_EQ(bytes.size(), count * static_cast<size_t>(size));
        std::vector<int32_t> read(count + 1, -7);
        const uint32_t most =
            read_tokens(memory.put_last(bytes), size, std::span(read).first(count));
        ASSERT_EQ(most, count == 0 ? 0U : static_cast<uint32_t>(limit)) << size << count;
        ASSERT_EQ(read.back(), -7);
        read.pop_back();
        ASSERT_TRUE(std::ranges::equal(read, wanted)) << size << " bytes, " << count;
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::data
