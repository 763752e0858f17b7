// The build takes this file in place of parquet_reader.cpp and arrow_reader.cpp if Arrow
// is absent.
#include "longhaul/base/error.h"
#include "longhaul/data/input/range_reader.h"

namespace longhaul::data {
namespace {

[[noreturn]] void refuse(const InputFile& file) {
  throw InputError("data",
                   file.path.string() +
                       ": this build reads no Parquet and Arrow files; build with "
                       "the pyarrow wheel (make deps), or convert to JSON lines");
}

}  // namespace

std::unique_ptr<RangeReader> open_parquet(const InputFile& file, const InputRange&,
                                          const InputOptions&) {
  refuse(file);
}
std::unique_ptr<RangeReader> open_arrow(const InputFile& file, const InputRange&,
                                        const InputOptions&) {
  refuse(file);
}
std::shared_ptr<LimitedPool> make_reader_memory(uint64_t) { return nullptr; }
std::vector<uint64_t> parquet_group_bytes(const InputFile& file, const InputOptions&) {
  refuse(file);
}
std::vector<uint64_t> arrow_batch_bytes(const InputFile& file, const InputOptions&) {
  refuse(file);
}
std::optional<EvenRows> even_arrow_rows(const InputFile& file, const InputOptions&,
                                        const std::vector<std::string>&, int64_t) {
  refuse(file);
}
uint64_t parquet_reader_bytes(const InputFile& file, const InputRange&,
                              const InputOptions&) {
  refuse(file);
}
uint64_t arrow_reader_bytes(const InputFile& file, const InputRange&,
                            const InputOptions&) {
  refuse(file);
}

}  // namespace longhaul::data
