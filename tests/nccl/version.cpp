// Every version of NCCL has this function of its public header. LONGHAUL_FAKE_NCCL is the
// version that the library plays.
extern "C" int ncclGetVersion(int* version) {
  *version = LONGHAUL_FAKE_NCCL;
  return 0;
}
