#!/bin/bash
# HyperPod runs this as root on each new node, replacements included, after its own set-up
# (OnInitComplete in create-cluster.json.in). Slurm, its partitions, health checks and node
# replacement are HyperPod's and are left alone; this only installs longhaul.
#
# Tried: against a directory (tests/house/deploy_test.py). Untried: on HyperPod.
set -euo pipefail
# HyperPod copies the whole prefix of S3 to the node: upload.sh's files lie beside this one.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source_uri=${1:-}
if [ -z "$source_uri" ]; then
  [ -s "$here/source.txt" ] || { echo "on_create: no $here/source.txt; see README.md" >&2; exit 1; }
  source_uri=$(head -n 1 "$here/source.txt")
fi
scratch=/opt/dlami/nvme # where HyperPod's images mount the node's own disks
[ -d "${LONGHAUL_NODE_ROOT:-}$scratch" ] || scratch=/opt/sagemaker
bash "$here/prepare_node.sh" "$source_uri" "$scratch"
