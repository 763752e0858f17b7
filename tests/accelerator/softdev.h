#pragma once

#include <cstdint>

// A device in host memory that behaves as a GPU does, for tests: a PrivateUse1 plug-in of
// LibTorch, liblonghaul_software_accelerator.so, which a run loads by run.device_plugin.
// As on a GPU,
// - the host cannot touch device memory (SIGSEGV), and fresh memory holds NaN, not zeros;
// - only streams and events order work. Kernels run at once on the calling thread, and
//   collectives later on a thread of their stream. The device checks the order that the
//   program asked for. Two uses of the same bytes, one of them a write, are a race if
//   neither a stream nor an event nor a wait of the host orders them;
// - the bytes of a copy into pinned memory arrive only when somebody has waited for the
//   copy: until then the memory holds 0xFF;
// - where there are several devices, a thread must choose one before it uses events,
//   waits or memory: on a GPU each process would else take memory of device 0;
// - operations between ranks run in each stream's order, and ranks that wait for each
//   other in a circle get an error;
// - a rank may stand still (SOFTDEV_FAULT). The others then run ahead as beside a GPU:
//   their kernels, whose results nobody will see, are entries of the stream's queue.
//
// Environment variables:
// - SOFTDEV_COUNT: the number of devices (1).
// - SOFTDEV_MEMORY: bytes of each device (16 GiB).
// - SOFTDEV_STRICT: at 1 a race throws, at 0 it is only printed.
// - SOFTDEV_HOST_BUFFERS: at 1 collectives take host memory too.
// - SOFTDEV_FORGET_WAITS: at 1 the device forgets that a stream is to wait for an event,
//   so that a program that needs the wait gets a report of a race.
// - SOFTDEV_IN_PROGRESS: how many questions (async_error) after each call of the library
//   are answered with "in progress" (0). Another call before then is an error.
// - SOFTDEV_QUEUE: the most entries of a stream that have not run; then the host blocks
//   (0: any number).
// - SOFTDEV_ONE_QUEUE: at 1 what all streams of a device have been given runs in program
//   order, one after the other.
// - SOFTDEV_LIMIT: seconds that a wait may take (300).
// - SOFTDEV_REPORT: a file that gets the counters as a JSON line at the end of a process
//   and at each mark.
// - SOFTDEV_TIMELINE: a file that gets a line for everything that a process puts into a
//   stream, in the order of the calls: process, stream, what.
// - SOFTDEV_TRACE: a file that gets the counters at each synchronisation. `queued` is the
//   number of operations that the default stream was given since the event that the host
//   has waited for. If it is 0, nothing runs while the host waits.
// - SOFTDEV_COMPOSITE: at 1 the device has no kernels of the program's operators, of
//   attention, nor of products in bf16 added in fp32.
// - SOFTDEV_NARROW: at 1 the device has the limits of tensor::DeviceLimits, and refuses
// by
//   name 64-bit tensors, writes to parts of tensors, and operations that Trainium's
//   backend lacks. It has none of the operations that SOFTDEV_COMPOSITE takes away.
// - SOFTDEV_MOST_BYTES: the most bytes of a tensor of a narrow device (any number).
// - SOFTDEV_WITHOUT: operations that the device has no kernel of ("aten::silu"), with
// commas
//   between: they run by a fallback on the CPU, and longhaul_device_fallbacks() lists
//   them.
// - SOFTDEV_NO_COLLECTIVES: at 1 there are no operations between ranks, and the program
//   goes through the host.
// - SOFTDEV_FAULT: a mistake that the device makes once in the program's place, the Nth
//   time that it can. The mistakes are forget_wait:N (of one event), host_read:N (of an
//   operand), wrong_stream:N (of a collective) and extra_wait:N (for the device). Two
//   more are early_receive:N (ahead of the sends that it is grouped with) and
//   early_reuse:N (of a buffer that another stream uses). With lost_device:N the Nth
//   kernel fails as on a GPU whose memory failed. By stall:N the device
//   SOFTDEV_FAULT_DEVICE (1) never begins its Nth operation between ranks, and by stop:N
//   the process stops before that operation as by SIGSTOP.

#pragma GCC visibility push(default)
extern "C" {

/// Returns the counters of this process as one JSON object. The text is valid until the
/// thread's next call of this function. The fields are:
/// - synchronizations: waits of the host for the device, also by polling an event behind
///   which it has launched nothing;
/// - launches: operations and copies;
/// - kernel_bytes: bytes of elements that they read and write, each once;
/// - operations: [launches, bytes] by name;
/// - device_allocations: blocks that the cache did not have;
/// - peak_asked_bytes: the most bytes of device memory in use, as tensors asked for them.
const char* softdev_counters();
/// Writes the counters to SOFTDEV_REPORT.
void softdev_mark(const char* label);
/// Sets a label for what the calling thread does next, which reports show.
void softdev_label(const char* label);
// longhaul_device_collectives() is declared in collectives.cpp.

}  // extern "C"
#pragma GCC visibility pop
