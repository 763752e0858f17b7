#!/bin/bash
# tools/same_numbers.sh OLD NEW: whether training still gives the same numbers, bit for bit,
# on this machine. --help says more; the work is in tools/same_numbers/.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v python3 >/dev/null || { echo "same_numbers: error: no python3 found" >&2; exit 2; }
exec python3 -B "$here/same_numbers" "$@"
