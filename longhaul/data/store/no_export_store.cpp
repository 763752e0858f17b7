#include "longhaul/base/error.h"
#include "longhaul/data/store/export_store.h"

namespace longhaul::data {

StoreExportReport export_store(const fs::path&, const fs::path&,
                               const StoreExportOptions&) {
  throw InputError("data",
                   "this program was built without Arrow, which writes save_to_disk "
                   "directories; build it with pyarrow in the virtual environment");
}

}  // namespace longhaul::data
