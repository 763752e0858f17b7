// Takes any bytes for the body of a request to `longhaul serve`. A request comes out
// whose ids the model has and whose length it takes, or an InputError, and never a crash.
#include "longhaul/base/error.h"
#include "longhaul/serve/requests.h"
#include "tests/support/small_tokenizer.h"

namespace {

void check(const longhaul::serve::Completion& request,
           const longhaul::serve::Served& served) {
  for (const longhaul::serve::Sequence& one : request.sequences) {
    if (one.prompt.empty() || one.positions() > served.max_length) __builtin_trap();
    if (one.top > longhaul::serve::kMostTop || one.max_tokens < 0) __builtin_trap();
    for (const int64_t id : one.prompt) {
      if (id < 0 || id >= served.vocab_size) __builtin_trap();
    }
    if (longhaul::serve::Sequence::of(one.json()).prompt != one.prompt) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul;
  using namespace longhaul::serve;
  static const data::ByteTokenizer tokenizer("t", true, false);
  static const chat::ChatFormat chat("{% for m in messages %}{{ m.content }}{% endfor %}",
                                     {});
  static const Served served = [] {
    Served one;
    one.vocab_size = 258;
    one.max_length = 64;
    return one;
  }();
  const Reading reading{served, tokenizer, &chat};
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto attempt = [&](const auto& read) {
    try {
      read();
    } catch (const InputError&) {
    }
  };
  attempt([&] { check(read_completion(body, reading), served); });
  attempt([&] { check(read_chat_completion(body, reading), served); });
  attempt([&] { read_tokenize(body, reading); });
  attempt([&] { read_detokenize(body, reading); });
  return 0;
}
