// Unpacks gzip with Intel's ISA-L, which has nearly three times zlib's rate.
#include <fmt/format.h>
#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <array>
#include <utility>

#include "longhaul/data/input/byte_stream.h"

namespace longhaul::data {
namespace {

constexpr std::array<std::pair<int, const char*>, 6> kProblems{{
    {ISAL_INVALID_WRAPPER, "incorrect header check"},
    {ISAL_UNSUPPORTED_METHOD, "unknown compression method"},
    {ISAL_INCORRECT_CHECKSUM, "incorrect checksum or length"},
    {ISAL_INVALID_BLOCK, "invalid block"},
    {ISAL_INVALID_SYMBOL, "invalid symbol"},
    {ISAL_INVALID_LOOKBACK, "invalid distance too far back"},
}};

std::string problem_of(int result) {
  if (result == ISAL_DECOMP_OK || result == ISAL_END_INPUT) return {};
  for (const auto& [code, text] : kProblems) {
    if (code == result) return text;
  }
  return fmt::format("error {}", result);
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
  // ISA-L only reads the bytes, though its interface has no const.
  inflater.next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(packed.data()));
  inflater.avail_in = static_cast<uint32_t>(packed.size());
  inflater.next_out = reinterpret_cast<uint8_t*>(content.data());
  inflater.avail_out = static_cast<uint32_t>(content.size());
  const int result = isal_inflate(&inflater);
  Step step;
  step.problem = problem_of(result);
  // On damaged data ISA-L can count more bytes as left than there were.
  const size_t left = std::min<size_t>(inflater.avail_in, packed.size());
  if (left != inflater.avail_in && step.problem.empty()) step.problem = "damaged";
  step.taken = packed.size() - left;
  step.made = content.size() - std::min<size_t>(inflater.avail_out, content.size());
  step.ended = inflater.block_state == ISAL_BLOCK_FINISH;
  return step;
}

}  // namespace longhaul::data
