#!/bin/bash
# Runs a program on a whole emulated machine with a Sapphire Rapids processor (Bochs).
set -euo pipefail

usage() {
  cat <<'END'
tools/emulated_cpu.sh [--file PATH]... PROGRAM [ARGUMENTS...]

Runs PROGRAM with AVX-512, AVX512-BF16 and AMX on a machine that has none: correctness, never
speed (a start takes about 15 s, and what follows runs some hundred times slower than here).

  tools/emulated_cpu.sh build/longhaul/ops/kernels/kernels_test --gtest_filter='Product*'

It boots Debian's kernel in Bochs, on one processor, with PROGRAM and the libraries that ldd
finds at their paths, in memory, prints what PROGRAM prints (both streams in one) and ends with
its status. It has no network and no files but these:

  --file PATH                   one more file or folder that PROGRAM reads, at the same path
  LONGHAUL_EMULATOR_MINUTES     limit of time (30)
  LONGHAUL_EMULATOR_MEGABYTES   the machine's memory (what PROGRAM and its files need, and 768)

Variables of the environment that begin with LONGHAUL_, OMP_ or GTEST_ are passed on. The first
call takes minutes: it fetches Bochs's source, firmware and a kernel from Debian (60 MB, signed,
through apt) and builds Bochs into .cache/emulated-cpu.
END
}
fail() { echo "emulated_cpu: error: $*" >&2; exit 125; }
say() { echo "emulated_cpu: $*" >&2; }

here=$(cd "$(dirname "$0")" && pwd)
cache=$(dirname "$here")/.cache/emulated-cpu
suite=trixie
files=()
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --file)
      [ -e "${2:-}" ] || fail "--file '${2:-}': there is no such file"
      files+=("$(realpath -s "$2")")
      shift 2 ;;
    --) shift; break ;;
    -*) fail "unknown option '$1'; see --help" ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || { usage >&2; exit 2; }
minutes=${LONGHAUL_EMULATOR_MINUTES:-30}
[[ $minutes =~ ^[1-9][0-9]{0,4}$ ]] ||
  fail "LONGHAUL_EMULATOR_MINUTES='$minutes' is no number of minutes (1 to 99999)"
program=$(type -P -- "$1") || fail "program '$1': not found, or nothing that can be run"
program=$(realpath -s "$program")
shift

# An apt of its own, beside this machine's: the next Debian's packages, nothing installed.
apt_options() {
  local mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  command -v apt-get >/dev/null || fail "apt-get is missing; this needs Debian or a child of it"
  [ -f $keyring ] || fail "Debian's keys are missing at $keyring; install debian-archive-keyring"
  # shellcheck disable=SC2016  # apt's own fields
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
    awk '/\/debian\/$/ && !seen++')
  [ -n "$mirror" ] ||
    fail "apt names no mirror of Debian (an address that ends in /debian/) in its sources"
  mkdir -p apt/lists/partial apt/archives/partial
  touch apt/status
  printf 'deb%s [signed-by=%s] %s %s main\n' '' $keyring "$mirror" $suite \
    -src $keyring "$mirror" $suite > apt/sources.list
  cat > apt/options <<END
Dir::State "$PWD/apt";
Dir::State::status "$PWD/apt/status";
Dir::State::lists "$PWD/apt/lists";
Dir::Cache "$PWD/apt";
Dir::Cache::archives "$PWD/apt/archives";
Dir::Etc::sourcelist "$PWD/apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Acquire::Languages "none";
APT::Sandbox::User "root";
END
  export APT_CONFIG=$PWD/apt/options
}

fetch() {
  local kernel
  apt_options
  say "fetching Bochs's source, firmware and a kernel of Debian $suite"
  apt-get update -qq || fail "apt cannot read Debian $suite's lists (see above)"
  kernel=$(apt-cache depends linux-image-cloud-amd64 |
    sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
  [ -n "$kernel" ] || fail "Debian $suite has no kernel under linux-image-cloud-amd64"
  rm -rf download root bochs
  mkdir download root bochs
  (cd download
   apt-get download -qq bochsbios vgabios busybox-static "$kernel"
   apt-get source -qq --tar-only --download-only bochs) ||
    fail "apt could not fetch what is needed (see above)"
  for package in download/[a-z]*.deb; do dpkg-deb -x "$package" root; done
  tar -C bochs --strip-components=1 -xf download/bochs_*.orig.tar.*
}

# Only what this machine needs: neither a window nor a debugger, which would cost half the
# speed. The patch says what Bochs lacks.
build_bochs() {
  say "building Bochs (some minutes of two processors)"
  for tool in g++ make patch; do
    command -v $tool >/dev/null || fail "$tool is missing; install it (Debian: $tool)"
  done
  patch -s -d bochs -p0 < "$here/emulated_cpu.patch" ||
    fail "tools/emulated_cpu.patch does not fit Bochs's source in $cache/bochs"
  (cd bochs
   ./configure --with-nogui --without-x11 --without-wx --without-sdl --without-sdl2 \
     --disable-plugins --disable-docbook --enable-cpu-level=6 --enable-x86-64 \
     --enable-all-optimizations --enable-memtype --enable-monitor-mwait --enable-avx \
     --enable-evex --enable-amx CFLAGS=-O2 CXXFLAGS=-O2
   make -j "$(nproc)") > build.log 2>&1 ||
    fail "Bochs was not built; the last lines of $cache/build.log:"$'\n'"$(tail -n 5 build.log)"
}

# The kernel as its own first part and the rest, as a boot loader takes it apart.
split_kernel() {
  local kernel sectors
  kernel=$(echo root/boot/vmlinuz-*)
  sectors=$(od -An -tu1 -j $((0x1f1)) -N 1 "$kernel")
  head -c $(((sectors + 1) * 512)) "$kernel" > setup.bin
  tail -c +$(((sectors + 1) * 512 + 1)) "$kernel" > kernel.bin
}

prepare() {
  mkdir -p "$cache"
  cd "$cache"
  exec 9> lock
  flock 9
  local wanted
  wanted=$({ declare -f fetch build_bochs split_kernel; cat "$here/emulated_cpu.patch"; } |
    sha256sum)
  [ "$(cat complete 2>/dev/null)" = "$wanted" ] && return
  rm -f complete
  fetch
  build_bochs
  split_kernel
  rm -rf download apt
  echo "$wanted" > complete
}

# The machine's first process: the program's output goes to the second serial port as it is.
write_init() {
  cat > "$1" <<'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
stty raw -echo 115200 -F /dev/ttyS1
cat /proc/uptime > /dev/ttyS0
sh /command < /dev/null > /dev/ttyS1 2>&1
status=$?
stty 115200 -F /dev/ttyS1
echo "emulated_cpu: status $status" > /dev/ttyS0
halt -f
END
  chmod +x "$1"
}

# What the machine sees of this one, as the archive that the kernel unpacks into memory.
write_files() {
  local tree=$run/tree path libraries name
  mkdir -p "$tree"/{bin,dev,proc,sys,tmp}
  cp "$cache/root/usr/bin/busybox" "$tree/bin/"
  write_init "$tree/init"
  libraries=$(ldd "$program" 2>/dev/null || true)
  [[ $libraries != *'not found'* ]] ||
    fail "libraries of $program are missing here:"$'\n'"$(grep 'not found' <<< "$libraries")"
  while read -r path; do
    mkdir -p "$tree$(dirname "$path")"
    cp -rL "$path" "$tree$path"
  done < <(printf '%s\n' "$program" "${files[@]}"
    sed -En 's/^[^/]*(\/[^ ]+) \(0x.*/\1/p' <<< "$libraries")
  {
    for name in $(compgen -e | grep -E '^(LONGHAUL|OMP|GTEST)_'); do
      printf 'export %s=%q\n' "$name" "${!name}"
    done
    printf 'exec'
    printf ' %q' "$program" "$@"
    echo
  } > "$tree/command"
  (cd "$tree" && find . | ./bin/busybox cpio -o -H newc 2>/dev/null) > "$run/files.cpio"
  rm -rf "$tree"
}

# Bytes of a number, the lowest first.
little_endian() {
  local value=$1
  for _ in 1 2 3 4; do
    printf '%b' "\\x$(printf %02x $((value & 255)))"
    value=$((value >> 8))
  done
}

# A boot loader's work, done here: the kernel, its header filled in, its options and the files
# lie in memory when the machine starts, and the disk's first sector only jumps to them.
write_machine() {
  local megabytes size firmware=$cache/root/usr/share
  # acpi=off, no5lvl: Bochs cannot leave system management mode with five levels of pages.
  # tsc=reliable: it counts instructions.
  local options="console=ttyS0,115200 quiet loglevel=4 nokaslr mitigations=off tsc=reliable
    acpi=off no5lvl random.trust_cpu=on panic=0 rdinit=/init"
  size=$(stat -c %s "$run/files.cpio")
  megabytes=${LONGHAUL_EMULATOR_MEGABYTES:-$((768 + 3 * size / 1048576))}
  [[ $megabytes =~ ^[1-9][0-9]{2,4}$ ]] ||
    fail "LONGHAUL_EMULATOR_MEGABYTES='$megabytes' is no memory (100 to 99999)"
  put() { dd of="$run/setup.bin" bs=1 seek=$(($1)) conv=notrunc status=none; }
  cp "$cache/setup.bin" "$run/setup.bin"
  printf '\xff\x81' | put 0x210            # an unknown loader; loaded high, with a heap
  little_endian $((0x8000000)) | put 0x218 # files: where, how many bytes
  little_endian "$size" | put 0x21c
  printf '\x00\xde' | put 0x224            # the heap's end
  little_endian $((0x1e000)) | put 0x228   # options: where
  printf '%s\0' "$(tr -s '\n ' ' ' <<< "$options")" | put 0xe000
  # cli; ds, es, fs, gs, ss = 0x1000; sp = 0xe000; jmp 0x1020:0
  printf '\xfa\xb8\x00\x10\x8e\xd8\x8e\xc0\x8e\xe0\x8e\xe8\x8e\xd0\xbc\x00\xe0' > "$run/disk"
  printf '\xea\x00\x00\x20\x10' >> "$run/disk"
  truncate -s $((16 * 63 * 512)) "$run/disk"
  printf '\x55\xaa' | dd of="$run/disk" bs=1 seek=510 conv=notrunc status=none
  cat > "$run/bochsrc" <<END
config_interface: textconfig
display_library: nogui
romimage: file=$firmware/bochs/BIOS-bochs-latest
vgaromimage: file=$firmware/vgabios/vgabios.bin
cpu: model=sapphire_rapids, count=1, ips=20000000, reset_on_triple_fault=0, ignore_bad_msrs=1
clock: sync=none
memory: guest=$megabytes, host=$megabytes
optramimage1: file=$run/setup.bin, address=0x10000
optramimage2: file=$cache/kernel.bin, address=0x100000
optramimage3: file=$run/files.cpio, address=0x8000000
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=disk, path=$run/disk, mode=flat, cylinders=1, heads=16, spt=63
boot: disk
com1: enabled=1, mode=file, dev=$run/console
com2: enabled=1, mode=file, dev=$run/output
panic: action=fatal
error: action=ignore
info: action=ignore
debug: action=ignore
log: $run/bochs.log
END
}

bochs='' output='' run=''
# shellcheck disable=SC2317  # run by the trap
finish() {
  [ -z "$bochs" ] || kill "$bochs" 2>/dev/null || true
  [ -z "$output" ] || kill "$output" 2>/dev/null || true
  [ -z "$run" ] || rm -rf "$run"
}

tell() {
  echo "emulated_cpu: the last lines of the machine's console and of Bochs:"
  tail -n 10 "$run/console" 2>/dev/null || true
  tail -n 5 "$run/bochs.log" "$run/bochs.stderr" 2>/dev/null || true
} >&2

start() {
  local status='' end=$((SECONDS + minutes * 60))
  # Open at both ends here: Bochs opens it with the first byte, which may never come.
  mkfifo "$run/output"
  exec 8<> "$run/output"
  touch "$run/console"
  cat "$run/output" 8>&- &
  output=$!
  "$cache/bochs/bochs" -q -f "$run/bochsrc" > "$run/bochs.stdout" 2> "$run/bochs.stderr" \
    < /dev/null 8>&- &
  bochs=$!
  while [ -z "$status" ]; do
    sleep 0.2
    status=$(sed -n 's/\r$//; s/^emulated_cpu: status \([0-9]*\)$/\1/p' "$run/console")
    [ -z "$status" ] || break
    if grep -q 'Kernel panic' "$run/console"; then
      tell
      fail "the emulated machine's kernel stopped (see above); is its memory too small?" \
        "LONGHAUL_EMULATOR_MEGABYTES gives more"
    fi
    if ! kill -0 "$bochs" 2>/dev/null; then
      tell
      fail "Bochs ended before $program did (see above)"
    fi
    if [ $SECONDS -ge $end ]; then
      tell
      fail "$program did not end within $minutes minutes; LONGHAUL_EMULATOR_MINUTES gives more"
    fi
  done
  kill "$bochs" 2>/dev/null || true
  wait "$bochs" 2>/dev/null || true
  bochs=''
  exec 8>&-
  wait "$output" || true
  output=''
  return "$status"
}

(prepare)
trap finish EXIT
trap 'exit 130' INT TERM
run=$(mktemp -d "$cache/run.XXXXXX")
write_files "$@"
write_machine
status=0
start || status=$?
exit "$status"
