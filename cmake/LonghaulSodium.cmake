# libsodium, for the control channel of a job.
include_guard(GLOBAL)
include(LonghaulSystemLibrary)
longhaul_system_library(sodium HEADER sodium.h PACKAGES libsodium-dev LIBRARIES sodium)
