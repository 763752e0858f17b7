#!/bin/bash
# Prepares one node of a cluster for longhaul; run as root when the node starts:
#
#   prepare_node.sh s3://BUCKET/PREFIX/longhaul-SHA256.tar.gz [SCRATCH_DIRECTORY]
#
# It unpacks the tree that upload.sh made, beside any other version, lets memory be locked (EFA
# needs that), gives the node's name its address, installs Neuron's driver on a Trainium without
# it, and says what else looks wrong. Only a tree that cannot be used is a failure:
# ParallelCluster and HyperPod replace a node whose script fails, which costs money and time.
# Running it again does no harm.
#
# Tried: against a directory and a stand-in for `aws` (tests/house/deploy_test.py). Untried: on
# a node of AWS.
set -euo pipefail

[ $# -ge 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
source_uri=$1
scratch=${2:-/local_scratch}
root=${LONGHAUL_NODE_ROOT:-} # tests only: everything is written below it
log=$root/var/log/longhaul-node.log
mkdir -p "$root"/{opt,etc/profile.d,etc/security/limits.d,usr/local/bin,var/log}

say() { echo "longhaul-node: $*" | tee -a "$log"; }
fail() { say "error: $*" >&2; exit 1; }

archive=${source_uri##*/}
[[ $archive =~ ^longhaul-([0-9a-f]{64})\.tar\.gz$ ]] ||
  fail "'$source_uri' must end in longhaul-SHA256.tar.gz, as upload.sh names it"
want=${BASH_REMATCH[1]}
tree=$root/opt/longhaul-$want

fetch() {
  local try
  for try in 1 2 3 4 5; do
    aws s3 cp --only-show-errors "$source_uri" "$1" && return
    say "download failed (try $try of 5)"
    sleep "$((try * ${LONGHAUL_RETRY_SECONDS:-5}))"
  done
  fail "no $source_uri; does the node's role allow s3:GetObject on it?"
}

install_tree() {
  local work got
  work=$(mktemp -d "$root/opt/longhaul.XXXXXX")
  # shellcheck disable=SC2064  # the directory of now
  trap "rm -rf '$work'" EXIT
  fetch "$work/archive"
  got=$(sha256sum "$work/archive" | cut -d' ' -f1)
  [ "$got" = "$want" ] || fail "$source_uri has the hash $got, not the one of its name"
  mkdir "$work/tree"
  tar --no-same-owner -xzf "$work/archive" -C "$work/tree"
  chmod -R go+rX "$work/tree"
  "$work/tree/bin/longhaul" --version >/dev/null ||
    fail "bin/longhaul does not run here: its C library must be as new as the builder's"
  # One rename: a job that starts now sees the whole tree or none.
  mv -T "$work/tree" "$tree" 2>/dev/null || [ -x "$tree/bin/longhaul" ] ||
    fail "cannot move the tree to $tree"
  rm -rf "$work"
  trap - EXIT
}

[ -x "$tree/bin/longhaul" ] || install_tree
ln -sfn "longhaul-$want" "$root/opt/longhaul.new"
mv -T "$root/opt/longhaul.new" "$root/opt/longhaul"
ln -sf /opt/longhaul/bin/longhaul "$root/usr/local/bin/longhaul"
say "$("$tree/bin/longhaul" --version | head -n 1) in /opt/longhaul"

cat >"$root/etc/security/limits.d/longhaul.conf" <<'LIMITS'
# EFA and pinned memory: a rank must be able to lock what it registers.
* soft memlock unlimited
* hard memlock unlimited
LIMITS

if [ -d "$root$scratch" ]; then
  chmod 1777 "$root$scratch"
else
  say "warning: no local scratch at $scratch"
fi

# Takes the node's name from the loopback's lines of /etc/hosts and gives it the address $1.
mend_own_name() {
  local work
  work=$(mktemp)
  awk -v name="$name" -v address="$1" '
    $1 ~ /^(127\.|::1$)/ {
      line = $1
      for (i = 2; i <= NF && $i !~ /^#/; i++)
        if ($i != name && index($i, name ".") != 1) line = line " " $i
      if (line != $1) print line
      next
    }
    { print }
    END { print address " " name }' "$root/etc/hosts" >"$work"
  cat "$work" >"$root/etc/hosts" # in place: it may be a mount
  rm -f "$work"
}

# From here on nothing fails; docs/troubleshooting.md says what each remark means.
name=$(hostname)
own=$(getent hosts "$name" 2>/dev/null | awk '{ print $1; exit }' || true)
case $own in
  "") say "warning: $name has no address: see /etc/hosts" ;;
  127.* | ::1)
    other=$(hostname -I 2>/dev/null | tr ' ' '\n' | grep -m 1 '\.' || true)
    if [ -n "$other" ] && mend_own_name "$other"; then
      say "$name was $own in /etc/hosts, and is $other now"
    else
      say "warning: $name is $own: other nodes would be sent to themselves"
    fi
    ;;
esac
if command -v timedatectl >/dev/null && [ "$(timedatectl show -p NTPSynchronized --value \
  2>/dev/null)" = no ]; then
  say "warning: the clock is not synchronised"
fi
if [ -x /opt/amazon/efa/bin/fi_info ] && ! /opt/amazon/efa/bin/fi_info -p efa >/dev/null 2>&1; then
  say "warning: no EFA device"
fi
if command -v nvidia-smi >/dev/null; then
  nvidia-smi -pm 1 >/dev/null 2>&1 || say "warning: nvidia-smi fails"
fi
# A Trainium gets what its image lacks from AWS's packages: driver, runtime, collectives, tools. The
# Python environment with torch_neuronx is the run's own (docs/trainium.md).
neuron=https://apt.repos.neuron.amazonaws.com
install_neuron() {
  local codename key=/etc/apt/keyrings/neuron.gpg
  codename=$(sed -n 's/^VERSION_CODENAME=//p' "$root/etc/os-release")
  mkdir -p "$root"/etc/apt/{keyrings,sources.list.d} &&
    curl -fsSL "$neuron/GPG-PUB-KEY-AMAZON-AWS-NEURON.PUB" >"$root$key.new" &&
    gpg --batch --yes --dearmor -o "$root$key" "$root$key.new" &&
    echo "deb [signed-by=$key] $neuron $codename main" >"$root/etc/apt/sources.list.d/neuron.list" &&
    apt-get update -q &&
    apt-get install -y -q -o DPkg::Lock::Timeout=300 "linux-headers-$(uname -r)" aws-neuronx-dkms \
      aws-neuronx-runtime-lib aws-neuronx-collectives aws-neuronx-tools &&
    modprobe neuron
}
machine=$(cat "$root/sys/class/dmi/id/product_name" 2>/dev/null || true)
case $machine in
  trn1* | inf*) say "warning: run.device = \"neuron\" does not train on $machine: take trn2 or trn3" ;;
  trn*)
    if [ ! -e "$root/dev/neuron0" ]; then
      install_neuron >>"$log" 2>&1 || true
    fi
    [ -e "$root/dev/neuron0" ] || say "warning: no /dev/neuron0: Neuron's driver is not there"
    ;;
esac
say "ready"
