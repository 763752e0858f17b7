#include "apps/passport/write_passport.h"

// `longhaul` becomes longhaul-torch before it would write a passport.

namespace longhaul::apps {

void write_passport(const fs::path& /*dir*/, const checkpoint::ModelSource& /*source*/,
                    const PassportCall& /*call*/, const objects::Access& /*objects*/,
                    const World& /*world*/) {
  LH_ASSERT(false, "a passport without LibTorch");
}

}  // namespace longhaul::apps
