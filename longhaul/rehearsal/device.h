#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

namespace longhaul::rehearsal {

/// Gives the process a device for PrivateUse1 whose memory has no pages (memory.h). Its
/// operations compute shapes and nothing else: an operation that LibTorch composes of
/// others is composed, all others ask LibTorch's kernel for meta tensors. The device has
/// the program's own operators, LibTorch's flash attention, and a product in bf16 that is
/// added in fp32. Must be called before the process uses any other device, and once.
///
/// The device lacks the operations `lacks`: "aten::mm" with all overloads, "aten::mm.out"
/// alone, or "longhaul::rope". The program takes another form where it has one; else the
/// call throws ConfigError, which names the operation. Throws InputError for a name that
/// no operation has.
void install_device(const std::set<std::string>& lacks = {});

/// Fills what the host reads of integers of the device: counts of rows. Called with the
/// memory of int32 or int64 numbers; without it, and for all other numbers, the host
/// reads zeros.
using HostRead = std::function<void(void* numbers, int64_t count, bool wide)>;
/// Is called whenever the host waits for the device.
using HostWait = std::function<void()>;
/// Sets both for the calling thread.
void set_host(HostRead read, HostWait wait);

}  // namespace longhaul::rehearsal
