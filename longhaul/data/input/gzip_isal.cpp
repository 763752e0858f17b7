// With Intel's ISA-L: nearly three times zlib's rate.
#include <fmt/format.h>
#include <isa-l/igzip_lib.h>

#include <algorithm>

#include "longhaul/data/input/gzip_decoder.h"

namespace longhaul::data {
namespace {

std::string problem_of(int result) {
  switch (result) {
    case ISAL_DECOMP_OK:
    case ISAL_END_INPUT:
      return {};
    case ISAL_INVALID_WRAPPER:
      return "incorrect header check";
    case ISAL_UNSUPPORTED_METHOD:
      return "unknown compression method";
    case ISAL_INCORRECT_CHECKSUM:
      return "incorrect checksum or length";
    case ISAL_INVALID_BLOCK:
      return "invalid block";
    case ISAL_INVALID_SYMBOL:
      return "invalid symbol";
    case ISAL_INVALID_LOOKBACK:
      return "invalid distance too far back";
    default:
      return fmt::format("error {}", result);
  }
}

}  // namespace

struct GzipDecoder::State {
  inflate_state inflater;
};

GzipDecoder::GzipDecoder() : state_(std::make_unique<State>()) {
  isal_inflate_init(&state_->inflater);
  state_->inflater.crc_flag = ISAL_GZIP;
}
GzipDecoder::~GzipDecoder() = default;

void GzipDecoder::reset() { isal_inflate_reset(&state_->inflater); }

GzipDecoder::Step GzipDecoder::run(std::span<const char> packed,
                                   std::span<char> content) {
  inflate_state& inflater = state_->inflater;
  // It reads only, though its interface has no const.
  inflater.next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(packed.data()));
  inflater.avail_in = static_cast<uint32_t>(packed.size());
  inflater.next_out = reinterpret_cast<uint8_t*>(content.data());
  inflater.avail_out = static_cast<uint32_t>(content.size());
  const int result = isal_inflate(&inflater);
  Step step;
  step.problem = problem_of(result);
  // On damaged data it can count more bytes as left than there were.
  const size_t left = std::min<size_t>(inflater.avail_in, packed.size());
  if (left != inflater.avail_in && step.problem.empty()) step.problem = "damaged";
  step.taken = packed.size() - left;
  step.made = content.size() - std::min<size_t>(inflater.avail_out, content.size());
  step.ended = inflater.block_state == ISAL_BLOCK_FINISH;
  return step;
}

}  // namespace longhaul::data
