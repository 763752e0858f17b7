#!/bin/bash
# tools/test.sh BUILD_DIR [ctest options]: runs the tests and ends with one line that
# counts every test case, not only every binary.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
shift
# Open MPI refuses root unless told; ranks outnumber cores in the tests.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# And they do, so that one that waits must leave the core to one that works.
export OMPI_MCA_mpi_yield_when_idle=1
# And so do threads: one that spins while it waits takes the core from the one that works.
export OMP_WAIT_POLICY=passive
report=$(realpath -m "$build")/test-report.xml
rm -f "$report"
status=0
# Two places for a core, one for a test that only waits: those run beside the others.
ctest --test-dir "$build" --no-tests=error --output-on-failure \
  --parallel "$((2 * ${TEST_JOBS:-$(nproc)} + 1))" --test-output-size-passed 1000000 \
  --test-output-size-failed 1000000 --output-junit "$report" "$@" || status=$?
[ -f "$report" ] || { echo "0 passed, 1 failed"; exit 1; }
.venv/bin/python3 tools/test_summary.py "$report" || status=1
exit $status
