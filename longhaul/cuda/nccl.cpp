#include "longhaul/cuda/nccl.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>
#include <optional>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/device/nccl_library.h"
#include "longhaul/device/nccl_settings.h"

namespace longhaul::cuda {
namespace {

using comm::DeviceApi;
using comm::ReduceOp;

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
    return "nccl " + device::nccl_version_text(library_.version()) +
           device::settings_of_sums(device::nccl_settings());
  }
  std::vector<std::string> prepare(bool repeats) override {
    std::vector<std::string> warnings = device::prepare_nccl(library_.version(), repeats);
    const std::vector<std::string> lacks = library_.lacks();
    warnings.insert(warnings.end(), lacks.begin(), lacks.end());
    return warnings;
  }
  int unique_id(UniqueId& id) override {
    ncclUniqueId made;
    static_assert(sizeof(made) == sizeof(UniqueId));
    const int result = get_unique_id_(&made);
    std::memcpy(id.data(), &made, sizeof(made));
    return result;
  }
  int ranks_of_id() const override {
    return init_rank_scalable_ == nullptr ? DeviceApi::ranks_of_id() : kRanksOfId;
  }
  int init_rank(Comm& comm, const Members& members) override {
    std::vector<ncclUniqueId> ids(members.ids.size());
    std::memcpy(ids.data(), members.ids.data(), ids.size() * sizeof(UniqueId));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (members.most_blocks > 0) config.maxCTAs = members.most_blocks;
    auto* const made = reinterpret_cast<ncclComm_t*>(&comm);
    if (ids.size() == 1) {
      return init_rank_config_(made, members.ranks, ids.front(), members.rank, &config);
    }
    return init_rank_scalable_(made, members.ranks, members.rank,
                               static_cast<int>(ids.size()), ids.data(), &config);
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

  std::optional<uint64_t> device_bytes(Comm comm) override {
    uint64_t bytes = 0;
    const bool told = mem_stats_ != nullptr &&
                      mem_stats_(comm_of(comm), kAllOfGpu, &bytes) == ncclSuccess;
    return told ? std::optional(bytes) : std::nullopt;
  }

  int set_device(int device) override { return cudaSetDevice(device); }
  int create_stream(Stream& stream) override {
    int least = 0, most = 0;
    if (const int result = cudaDeviceGetStreamPriorityRange(&least, &most); result != 0) {
      return result;
    }
    cudaStream_t made = nullptr;
    const int result = cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, most);
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
  /// Beyond so many ranks the ranks of a communicator meet in several places, as those of
  /// PyTorch do.
  static constexpr int kRanksOfId = 128;
  using InitRankScalable = ncclResult_t (*)(ncclComm_t*, int, int, int, ncclUniqueId*,
                                            ncclConfig_t*);

  /// The header of the build may be older than the library.
  using MemStats = ncclResult_t (*)(ncclComm_t, int, uint64_t*);
  static constexpr int kAllOfGpu = 3;  ///< ncclStatGpuMemTotal

  device::NcclLibrary library_;
  decltype(&ncclGetUniqueId) get_unique_id_ = library_.get("ncclGetUniqueId");
  decltype(&ncclCommInitRankConfig) init_rank_config_ =
      library_.get("ncclCommInitRankConfig");
  /// Since NCCL 2.29; else null.
  MemStats mem_stats_ = library_.find("ncclCommMemStats");
  /// Since NCCL 2.23; else null.
  InitRankScalable init_rank_scalable_ = library_.find("ncclCommInitRankScalable");
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
