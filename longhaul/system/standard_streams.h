#pragma once

namespace longhaul::system {

// The standard streams of a program: what becomes of descriptors that are closed, and of
// output that nobody takes. A process has one set of them, so there are functions here
// and no class.

/// Makes the standard streams of this process safe; main() calls it before anything else.
/// A closed descriptor from 0 to 2 is opened on /dev/null, so that no file of a run gets
/// the number of a standard stream. Signals of a failed write are ignored, so that the
/// write fails and the process lives: SIGPIPE if the reader has gone, and SIGXFSZ if a
/// file has reached the limit of `ulimit -f`. `stderr` drops what it cannot write, and
/// what its reader does not take within a second. `stdout` waits and fails as usual until
/// let_output_fail() is called.
void guard_standard_streams();

/// Drops, from now on, what `stdout` cannot write, and what nobody takes within a second.
/// Call it for work whose result lies in files: the work then goes on without a reader.
void let_output_fail();

/// Returns the errno of the first write of `stdout` that failed, or 0.
int output_error();

/// Returns whether `stdout` could not be written because nobody takes it any more: the
/// reader of a pipe, or the terminal, has gone.
bool output_reader_has_gone();

}  // namespace longhaul::system
