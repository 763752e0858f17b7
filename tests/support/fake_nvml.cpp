// A stand-in for NVIDIA's libnvidia-ml.so.1, for tests. The variable FAKE_NVML decides
// what it says.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {
bool says(std::string_view word) {
  const char* text = std::getenv("FAKE_NVML");
  return text != nullptr && std::string_view(text).find(word) != std::string_view::npos;
}
struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
int memory_reads = 0;
}  // namespace

extern "C" {
int nvmlInit_v2() {
  if (says("crash")) std::abort();
  return says("no driver") ? 9 : 0;
}
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = says("many") ? 4000000000U : 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index == 1 && says("lost")) return 15;
  static char devices[64];
  *device = devices + index;
  return 0;
}
int nvmlDeviceGetName(void* /*device*/, char* name, unsigned size) {
  std::strncpy(name, "Fake H100", size);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* /*device*/, Memory* memory) {
  if (says("hang later") && ++memory_reads > 2) {
    while (true) ::pause();
  }
  if (says("dies later") && ++memory_reads > 2) std::abort();
  *memory = {80000000000ULL, 79000000000ULL, 1000000000ULL};
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* /*device*/, Utilization* now) {
  if (says("no utilization")) return 3;  // the driver supports no utilization
  *now = {25, 10};
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* /*device*/, int type, int counter,
                                unsigned long long* count) {
  if (says("no ecc")) return 3;  // the driver supports no ECC
  *count = type == 1 && counter == 0 && says("ecc errors") ? 3 : 0;
  return 0;
}
int nvmlDeviceGetRemappedRows(void* /*device*/, unsigned* corrected,
                              unsigned* uncorrected, unsigned* pending,
                              unsigned* failure) {
  *corrected = *uncorrected = *failure = 0;
  *pending = says("pending") ? 1 : 0;
  return 0;
}
}
