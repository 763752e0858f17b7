#pragma once

namespace longhaul::system {

// The standard streams of a program: what becomes of descriptors that are closed, and of
// output that nobody takes. They belong to the process, so they are functions.

/// Makes the standard streams of this process safe; main() calls it before anything else.
/// A closed descriptor from 0 to 2 is opened on /dev/null, so that no file of a run gets
/// its number. A reader that has gone ends nobody (SIGPIPE is ignored), and neither does
/// a file that reaches the limit of `ulimit -f` (SIGXFSZ): its write fails. What `stderr`
/// cannot write is dropped. What `stdout` cannot write fails as usual, until
/// let_output_fail() is called. What is dropped includes what a reader that is there does
/// not take within a second.
void guard_standard_streams();

/// Drops, from now on, what `stdout` cannot write, or what nobody takes within a second:
/// it tells of work whose result lies in files, and the work goes on.
void let_output_fail();

/// Returns the errno of the first write of `stdout` that failed, or 0.
int output_error();

/// Returns whether `stdout` could not be written because nobody takes it any more: the
/// reader of a pipe, or the terminal, has gone.
bool output_reader_has_gone();

}  // namespace longhaul::system
