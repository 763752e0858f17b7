// Unpacks gzip with zlib: the build takes this file if ISA-L is absent.
#include <zlib.h>

#include "longhaul/base/error.h"
#include "longhaul/data/input/byte_stream.h"

namespace longhaul::data {

struct GzipDecoder::State {
  // Adding 16 selects the gzip format only.
  State() {
    LH_CHECK(inflateInit2(&inflater, 15 + 16) == Z_OK, "data", "zlib does not start");
  }
  ~State() { inflateEnd(&inflater); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  z_stream inflater{};
};

GzipDecoder::GzipDecoder() : state_(std::make_unique<State>()) {}
GzipDecoder::~GzipDecoder() = default;

void GzipDecoder::reset() { inflateReset(&state_->inflater); }

GzipDecoder::Step GzipDecoder::run(std::span<const char> packed,
                                   std::span<char> content) {
  z_stream& inflater = state_->inflater;
  inflater.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  inflater.avail_in = static_cast<uInt>(packed.size());
  inflater.next_out = reinterpret_cast<Bytef*>(content.data());
  inflater.avail_out = static_cast<uInt>(content.size());
  const int result = inflate(&inflater, Z_NO_FLUSH);
  Step step{packed.size() - inflater.avail_in,
            content.size() - inflater.avail_out,
            result == Z_STREAM_END,
            {}};
  if (result != Z_OK && result != Z_BUF_ERROR && result != Z_STREAM_END) {
    step.problem = inflater.msg != nullptr ? inflater.msg : "unknown";
  }
  return step;
}

}  // namespace longhaul::data
