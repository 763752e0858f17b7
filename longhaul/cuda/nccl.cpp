#include "longhaul/cuda/nccl.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>

#include "longhaul/base/error.h"

namespace longhaul::cuda {
namespace {

using comm::DeviceApi;
using comm::ReduceOp;

constexpr const char* kLibrary = "libnccl.so.2";

/// The library of NCCL: the copy that LibTorch has loaded, if there is one. A second copy
/// would be a second NCCL in the process.
class Library {
 public:
  Library() {
    handle_ = ::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
    if (handle_ == nullptr) handle_ = ::dlopen(kLibrary, RTLD_NOW);
    if (handle_ == nullptr) {
      fail_config("comm",
                  "{} cannot be loaded ({}); install NCCL, or put its "
                  "directory into LD_LIBRARY_PATH",
                  kLibrary, ::dlerror());
    }
    int version = 0;
    const decltype(&ncclGetVersion) get_version = get("ncclGetVersion");
    get_version(&version);
    if (version / 10000 != NCCL_MAJOR || version < kOldest) {
      fail_config("comm",
                  "{} is NCCL {}; this build needs NCCL of major version {}, at least {}",
                  kLibrary, version, NCCL_MAJOR, kOldest);
    }
  }

  /// The address of a function of the library, which converts to a pointer of any type of
  /// function.
  struct Symbol {
    void* address;
    template <typename Function>
    operator Function*() const {
      return reinterpret_cast<Function*>(address);
    }
  };
  Symbol get(const char* name) const {
    void* address = ::dlsym(handle_, name);
    if (address == nullptr) {
      fail_config("comm", "{} lacks the function {}; install a newer NCCL", kLibrary,
                  name);
    }
    return {address};
  }

 private:
  static constexpr int kOldest = 21400;  ///< first with communicators that do not block
  void* handle_ = nullptr;
};

ncclDataType_t type_of(format::DType dtype) {
  switch (dtype) {
    case format::DType::F32:
      return ncclFloat32;
    case format::DType::BF16:
      return ncclBfloat16;
    case format::DType::F64:
      return ncclFloat64;
    case format::DType::I64:
      return ncclInt64;
    default:
      LH_ASSERT(false, "{} reached NCCL", format::dtype_name(dtype));
  }
  return ncclInt8;
}

ncclRedOp_t op_of(ReduceOp op) { return op == ReduceOp::Sum ? ncclSum : ncclMax; }
ncclComm_t comm_of(DeviceApi::Comm comm) { return static_cast<ncclComm_t>(comm); }
cudaStream_t stream_of(DeviceApi::Stream stream) {
  return static_cast<cudaStream_t>(stream);
}
cudaEvent_t event_of(DeviceApi::Event event) { return static_cast<cudaEvent_t>(event); }

/// Calls NCCL and the CUDA runtime.
class RealNccl : public DeviceApi {
 public:
  std::string name() const override { return "NCCL"; }
  std::string describe() const override {
    int version = 0;
    get_version_(&version);
    std::string text =
        fmt::format("nccl {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
    for (const char* setting : {"NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE"}) {
      if (const char* value = std::getenv(setting)) {
        text += fmt::format(" {}={}", setting, value);
      }
    }
    return text;
  }
  int unique_id(UniqueId& id) override {
    ncclUniqueId made;
    static_assert(sizeof(made) == sizeof(UniqueId));
    const int result = get_unique_id_(&made);
    std::memcpy(id.data(), &made, sizeof(made));
    return result;
  }
  int init_rank(Comm& comm, int ranks, const UniqueId& id, int rank) override {
    ncclUniqueId given;
    std::memcpy(&given, id.data(), sizeof(given));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t made = nullptr;
    const int result = init_rank_config_(&made, ranks, given, rank, &config);
    comm = made;
    return result;
  }
  int all_reduce(const void* in, void* out, size_t count, format::DType dtype,
                 ReduceOp op, Comm comm, Stream stream) override {
    return all_reduce_(in, out, count, type_of(dtype), op_of(op), comm_of(comm),
                       stream_of(stream));
  }
  int all_gather(const void* in, void* out, size_t bytes, Comm comm,
                 Stream stream) override {
    return all_gather_(in, out, bytes, ncclInt8, comm_of(comm), stream_of(stream));
  }
  int reduce_scatter(const void* in, void* out, size_t count, format::DType dtype,
                     ReduceOp op, Comm comm, Stream stream) override {
    return reduce_scatter_(in, out, count, type_of(dtype), op_of(op), comm_of(comm),
                           stream_of(stream));
  }
  int broadcast(void* buffer, size_t bytes, int root, Comm comm, Stream stream) override {
    return broadcast_(buffer, buffer, bytes, ncclInt8, root, comm_of(comm),
                      stream_of(stream));
  }
  int send(const void* data, size_t bytes, int peer, Comm comm, Stream stream) override {
    return send_(data, bytes, ncclInt8, peer, comm_of(comm), stream_of(stream));
  }
  int recv(void* data, size_t bytes, int peer, Comm comm, Stream stream) override {
    return recv_(data, bytes, ncclInt8, peer, comm_of(comm), stream_of(stream));
  }
  int group_start() override { return group_start_(); }
  int group_end() override { return group_end_(); }
  int async_error(Comm comm, int& state) override {
    ncclResult_t found = ncclSuccess;
    const int result = async_error_(comm_of(comm), &found);
    state = found;
    return result;
  }
  std::string error_text(int result, Comm comm) override {
    const char* last = last_error_(comm_of(comm));
    const std::string text = error_string_(static_cast<ncclResult_t>(result));
    return last == nullptr || *last == '\0' ? text : text + " (" + last + ")";
  }

  int set_device(int device) override { return cudaSetDevice(device); }
  int create_stream(Stream& stream) override {
    cudaStream_t made = nullptr;
    const int result = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    stream = made;
    return result;
  }
  int create_event(Event& event) override {
    cudaEvent_t made = nullptr;
    const int result = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
    event = made;
    return result;
  }
  int record(Event event, Stream stream) override {
    return cudaEventRecord(event_of(event), stream_of(stream));
  }
  int stream_waits(Stream stream, Event event) override {
    return cudaStreamWaitEvent(stream_of(stream), event_of(event), 0);
  }
  int is_done(Event event, bool& done) override {
    const cudaError_t result = cudaEventQuery(event_of(event));
    done = result == cudaSuccess;
    return result == cudaErrorNotReady ? 0 : result;
  }
  std::string device_text(int result) override {
    return cudaGetErrorString(static_cast<cudaError_t>(result));
  }

 private:
  Library library_;
  decltype(&ncclGetVersion) get_version_ = library_.get("ncclGetVersion");
  decltype(&ncclGetUniqueId) get_unique_id_ = library_.get("ncclGetUniqueId");
  decltype(&ncclCommInitRankConfig) init_rank_config_ =
      library_.get("ncclCommInitRankConfig");
  decltype(&ncclAllReduce) all_reduce_ = library_.get("ncclAllReduce");
  decltype(&ncclAllGather) all_gather_ = library_.get("ncclAllGather");
  decltype(&ncclReduceScatter) reduce_scatter_ = library_.get("ncclReduceScatter");
  decltype(&ncclBroadcast) broadcast_ = library_.get("ncclBroadcast");
  decltype(&ncclSend) send_ = library_.get("ncclSend");
  decltype(&ncclRecv) recv_ = library_.get("ncclRecv");
  decltype(&ncclGroupStart) group_start_ = library_.get("ncclGroupStart");
  decltype(&ncclGroupEnd) group_end_ = library_.get("ncclGroupEnd");
  decltype(&ncclCommGetAsyncError) async_error_ = library_.get("ncclCommGetAsyncError");
  decltype(&ncclGetLastError) last_error_ = library_.get("ncclGetLastError");
  decltype(&ncclGetErrorString) error_string_ = library_.get("ncclGetErrorString");
};

}  // namespace

std::shared_ptr<comm::DeviceApi> nccl() { return std::make_shared<RealNccl>(); }

}  // namespace longhaul::cuda
