#include "longhaul/cluster/process/unwind.h"

namespace longhaul::cluster {

struct Unwinder::State {};

bool Unwinder::is_built() { return false; }
std::string Unwinder::version() { return "not built in"; }
Unwinder::Unwinder(pid_t /*pid*/) {}
Unwinder::~Unwinder() = default;
std::string Unwinder::frames(pid_t /*thread*/) { return {}; }

}  // namespace longhaul::cluster
