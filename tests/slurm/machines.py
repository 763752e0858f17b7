"""Machines made of Linux namespaces: own network, name, processes, /tmp and /dev/shm.

A machine is its first process. When that dies the kernel ends every other process of the
machine and takes its network and memory back, so nothing is left whatever a test does; and it
dies with the process that made it.
"""

import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import time

PROGRAMS = ["unshare", "nsenter", "setpriv", "ip", "mount", "timeout"]
# The first process waits for children that have ended, so that orphans do not stay as zombies.
INIT = "while :; do sleep 3600; done"


class CannotMake(Exception):
    """Says what this computer lacks for machines made of namespaces."""


def missing():
    """Returns why no machine can be made here, or None."""
    if os.geteuid() != 0:
        return "namespaces for network and mounts need root"
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    probe = subprocess.run(
        ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c",
         "mount -t tmpfs none /dev/shm && ip link add b0 type bridge && ip link add type veth"],
        capture_output=True, text=True, timeout=30)
    if probe.returncode != 0:
        return f"namespaces are not allowed here: {probe.stderr.strip()}"
    return None


def wait_until(condition, seconds, what):
    """Returns the first true value of `condition`; fails after so many seconds."""
    limit = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > limit:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.05)


def kill_process(pid, number=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def children(pid):
    try:
        return [int(word) for word in
                pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def environment_of(pid):
    """The variables that a process was started with; empty when it is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in text.split(b"\0") if b"=" in entry)
    return {key.decode(errors="replace"): value.decode(errors="replace")
            for key, _, value in pairs}


def arguments_of(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [word.decode(errors="replace") for word in text.split(b"\0")[:-1]]


def state_of(pid):
    """The letter that the kernel has for the state of a process; '' when the process is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]


def _die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Machine:
    """One machine. `visible` names directories that must be seen in spite of a private /tmp."""

    def __init__(self, name, address, hosts, visible=(), mount_space=None):
        self.name = name
        self.address = address
        self._hosts = hosts
        self._visible = [pathlib.Path(path).resolve() for path in visible]
        self._mount_space = mount_space  # the machine whose mounts this one starts with
        self._holder = None
        self.init = 0  # process id of its first process, seen from outside

    @property
    def on(self):
        return self._holder is not None

    def start(self, extra=""):
        """Switches the machine on; `extra` is shell text that runs first."""
        assert not self.on
        command = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc",
                   "--propagation", "private", "--kill-child=SIGKILL", "sh", "-ec",
                   f"{self._preparation()}\n{extra}\necho ready\nexec sh -c '{INIT}'"]
        if self._mount_space is not None:
            command = ["nsenter", "-t", str(self._mount_space.init), "-m", *command]
        self._holder = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, preexec_fn=_die_with_parent)
        if self._holder.stdout.readline() != "ready\n":
            _, errors = self._holder.communicate(timeout=10)
            self._holder = None
            raise CannotMake(f"machine {self.name}: {errors.strip()}")
        self.init = wait_until(lambda: children(self._holder.pid), 10, "the first process")[0]
        self.run("ip", "link", "set", "lo", "up")

    def _preparation(self):
        lines = [f"hostname {self.name}", f"mount --bind '{self._hosts}' /etc/hosts",
                 "mount -t tmpfs -o size=256m tmpfs /dev/shm"]
        # Directories below the old /tmp that must stay visible are held elsewhere while /tmp is
        # replaced.
        in_tmp = [path for path in self._visible if path.is_relative_to("/tmp")]
        held = [(f"{self._hosts}.held/{i}", path) for i, path in enumerate(in_tmp)]
        for place, path in held:
            lines += [f"mkdir -p '{place}'", f"mount --bind '{path}' '{place}'"]
        lines += ["mount -t tmpfs -o size=1g tmpfs /tmp", "chmod 1777 /tmp"]
        for place, path in held:
            lines += [f"mkdir -p '{path}'", f"mount --bind '{place}' '{path}'"]
        return "\n".join(lines)

    def enter(self, *command, cwd="/"):
        """Returns the command line that runs a command on this machine."""
        assert self.on, f"{self.name} is switched off"
        return ["nsenter", "-t", str(self.init), "-n", "-u", "-m", "-p", "--",
                "env", "-C", str(cwd), *map(str, command)]  # nsenter itself goes to /

    def run(self, *command, check=True, seconds=60, **options):
        """Runs a command to its end and returns the completed process."""
        line = self.enter("timeout", "-k", "5", seconds, *command, cwd=options.pop("cwd", "/"))
        result = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=seconds + 20, **options)
        if check and result.returncode != 0:
            raise AssertionError(f"{self.name}: {' '.join(map(str, command))} ended with "
                                 f"{result.returncode}\n{result.stdout}\n{result.stderr}")
        return result

    def spawn(self, *command, **options):
        """Starts a command and leaves it running. It ends with the machine at the latest."""
        line = self.enter(*command, cwd=options.pop("cwd", "/"))
        return subprocess.Popen(line, stdin=subprocess.DEVNULL,
                                preexec_fn=_die_with_parent, **options)

    def plug_in(self, switch):
        """Joins the machine to the bridge of `switch`, the machine that has one."""
        # The kernel needs time to remove the link of a machine that is gone.
        switch.run("ip", "link", "delete", f"to-{self.name}", check=False)
        self.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name",
                 f"to-{self.name}")
        # The link's other end moves into the network namespace of the switch.
        subprocess.run(["nsenter", "-t", str(self.init), "-n", "ip", "link", "set",
                        f"to-{self.name}", "netns", str(switch.init)], check=True, timeout=30)
        switch.run("ip", "link", "set", f"to-{self.name}", "master", "bridge0", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def path_inside(self, path):
        """The path by which the machine's view of `path` is reached from outside, with the
        machine's own mounts."""
        return pathlib.Path(f"/proc/{self.init}/root{path}")

    def processes(self):
        """The ids, seen from outside, of the machine's processes except the first one."""
        space = os.stat(f"/proc/{self.init}/ns/pid").st_ino
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.stat(path / "ns" / "pid").st_ino == space and int(path.name) != self.init:
                    found.append(int(path.name))
        return sorted(found)

    def fill(self, folder, left=65536):
        """Fills a file system that only this machine has, except for `left` bytes."""
        self.run("sh", "-c", f"free=$(($(stat -f -c '%a*%S' {folder}) - {left})); "
                 f"fallocate -l $free {folder}/full")

    def power_off(self):
        """Ends all processes of the machine at once. Its /tmp, /dev/shm and network are gone with
        them."""
        if not self.on:
            return
        kill_process(self.init)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._holder.wait(10)
        self._holder.kill()
        self._holder.wait(10)
        self._holder.stdout.close()
        self._holder.stderr.close()
        self._holder = None
