"""A Slurm cluster of several machines on this one: see machines.py."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import machines
import pytest
from machines import Machine, kill_process, wait_until

DAEMONS = ["munged", "slurmctld", "slurmd", "srun", "sbatch"]
PMIX_PLUGIN = "slurm*/mpi_pmix.so"
TASKS = 2  # on each node
TEMPORARY = "/tmp/of_jobs"  # TMPDIR of jobs, on each node for itself

CONFIG = """
ClusterName=longhaul
SlurmctldHost=head(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={root}/munge/socket,cred_expire={credential_seconds}
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
SlurmdDebug=verbose
SlurmctldDebug=verbose
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
TopologyPlugin=topology/tree
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout={node_seconds}
SlurmctldTimeout=30
MessageTimeout=5
TCPTimeout=2
KillWait={kill_seconds}
InactiveLimit=0
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
JobRequeue=1
{nodes}
PartitionName=batch Nodes={standing} Default=YES MaxTime=INFINITE State=UP
PartitionName=other Nodes={standing} MaxTime=60 State=UP
{cloud}"""

# A node of the cloud is off until a job gets it. Slurm then asks for the node, and the test boots
# it or does not. No node is switched off by itself.
CLOUD = """
PartitionName=cloud Nodes=ALL State=UP
ResumeProgram=/bin/true
SuspendProgram=/bin/true
SuspendTime=100000
PrivateData=cloud
SuspendTimeout=1
ResumeTimeout=1800
SlurmctldParameters=power_save_interval=1,cloud_dns
"""


def missing():
    """Returns why no cluster can be set up here, or None."""
    absent = [program for program in DAEMONS if shutil.which(program) is None]
    if absent:
        return f"Slurm is not installed here (no {', '.join(absent)}; see requirements-debian.txt)"
    libraries = list(pathlib.Path("/usr/lib").glob("*/" + PMIX_PLUGIN))
    if not libraries:
        return "this Slurm has no PMIx plug-in"
    return machines.missing()


PREFIX = "longhaul-slurm-"


def remove_leftovers(folder):
    """Removes the files of clusters whose test was killed. Their machines died with the test."""
    for path in pathlib.Path(folder).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            if not pathlib.Path(f"/proc/{int((path / 'owner').read_text())}").exists():
                shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def running(nodes, **options):
    """A cluster that sees the sources and the build; skips the tests where none can be set up."""
    lacks = missing()
    if lacks:
        pytest.skip(f"no Slurm cluster can be set up here: {lacks}")
    source = pathlib.Path(__file__).resolve().parents[2]
    build = pathlib.Path(os.environ.get("LONGHAUL_BIN_DIR", source / "build" / "bin")).parent
    made = Cluster(nodes, [source, build], **options)
    try:
        made.start()
        yield made
    finally:
        made.stop()


class Cluster:
    """Head and compute nodes n1, n2 ... on two switches by pairs; `shared` is a directory that
    all of them see.

    A lost node is noticed after up to twice `node_seconds`; a requeued job waits for
    `credential_seconds` before it starts again (120 where nobody sets it).

    The last `cloud` nodes are off until a job of the partition "cloud", which has all nodes, gets
    them and the test boots them."""

    def __init__(self, nodes, visible, node_seconds=5, credential_seconds=5, kill_seconds=3,
                 cloud=0):
        # The directory lies outside of /tmp, because every machine has a /tmp of its own.
        remove_leftovers("/var/tmp")
        self.shared = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX, dir="/var/tmp"))
        (self.shared / "owner").write_text(str(os.getpid()))
        os.chmod(self.shared, 0o755)
        self._root = self.shared / "slurm"
        for name in ["munge", "state", "home"]:
            (self._root / name).mkdir(parents=True)
        (self._root / "munge").chmod(0o755)
        names = [f"n{i + 1}" for i in range(nodes)]
        addresses = {name: f"10.77.0.{i + 11}" for i, name in enumerate(names)}
        hosts = self._root / "hosts"
        hosts.write_text("127.0.0.1 localhost\n10.77.0.1 head\n" + "".join(
            f"{address} {name}\n" for name, address in addresses.items()))
        self.cloud = names[nodes - cloud:]
        self.standing = names[:nodes - cloud]
        lines = [f"NodeName={name} NodeAddr={address} CPUs={TASKS} RealMemory=1000 "
                 f"State={'CLOUD' if name in self.cloud else 'UNKNOWN'}"
                 for name, address in addresses.items()]
        self._config = self._root / "slurm.conf"
        self._config.write_text(CONFIG.format(
            root=self._root, nodes="\n".join(lines), standing=",".join(self.standing),
            cloud=CLOUD if cloud else "", node_seconds=node_seconds,
            credential_seconds=credential_seconds, kill_seconds=kill_seconds))
        self.switches = [[name for i, name in enumerate(names) if i // 2 % 2 == side]
                         for side in (0, 1)]
        (self._root / "topology.conf").write_text("".join(
            f"SwitchName=s{i} Nodes={','.join(members)}\n"
            for i, members in enumerate(self.switches)) + "SwitchName=top Switches=s[0-1]\n")
        for name in names:
            (self._root / "spool" / name).mkdir(parents=True)
        key = self._root / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self.node_seconds = node_seconds
        self.head = Machine("head", "10.77.0.1", hosts, visible)
        self.nodes = {name: Machine(name, addresses[name], hosts, visible, self.head)
                      for name in names}
        self._jobs = []
        self._covered = []  # (node, path): what that node alone sees in place of the path

    # Setting up and taking down

    def start(self):
        small = self.shared / "small"
        # The directory is a file system of its own, which can be frozen. Without a loop device it
        # is an empty directory.
        disk, image = self.shared / "disk", self._root / "disk.img"
        self.head.start(
            f"mkdir -p '{small}' '{disk}'; mount -t tmpfs -o size=4m tmpfs '{small}'; "
            f"truncate -s 64m '{image}'; mkfs.ext4 -q -F '{image}'; "
            f"mount -o loop '{image}' '{disk}' || true")
        self.head.run("ip", "link", "add", "bridge0", "type", "bridge")
        self.head.run("ip", "link", "set", "bridge0", "up")
        self.head.run("ip", "link", "add", "bridge1", "type", "bridge")
        self.head.run("ip", "link", "set", "bridge1", "up")
        self.head.run("ip", "address", "add", "10.77.0.1/24", "dev", "bridge0")
        munge = self._root / "munge"
        self.head.run("munged", "--force", f"--socket={munge}/socket", f"--key-file={munge}/key",
                      f"--pid-file={munge}/pid", f"--seed-file={munge}/seed",
                      f"--log-file={munge}/log")
        self.start_controller()
        for name in self.standing:
            self.power_on(name)
        self.wait_for_state("idle", *self.standing)

    def stop(self):
        """Switches all machines off. Removes the shared directory unless LONGHAUL_KEEP is set."""
        for machine in [*self.nodes.values(), self.head]:
            machine.power_off()
        if not os.environ.get("LONGHAUL_KEEP"):
            shutil.rmtree(self.shared, ignore_errors=True)

    def start_controller(self):
        self.head.run("slurmctld", "-f", self._config, env=self.environment())
        wait_until(lambda: self.call("scontrol", "ping", check=False).returncode == 0, 20,
                   "slurmctld answers")

    def restart_controller(self, down_seconds=0):
        """Kills slurmctld and starts it again."""
        kill_process(self.daemon(self.head, "slurmctld"))
        time.sleep(down_seconds)
        self.start_controller()

    # Commands

    def environment(self):
        kept = {key: value for key, value in os.environ.items()
                if not key.startswith(("SLURM_", "OMPI_", "PMIX_"))}
        return {**kept, "SLURM_CONF": str(self._config), "HOME": str(self._root / "home"),
                "TMPDIR": "/tmp", "OMP_NUM_THREADS": "1",
                # There are more ranks than cores, so a rank that waits must leave its core to
                # others.
                "OMPI_MCA_mpi_yield_when_idle": "1"}

    def call(self, *command, node=None, **options):
        """Runs a command on the head node, or on a compute node."""
        machine = self.head if node is None else self.nodes[node]
        variables = {**self.environment(), **options.pop("env", {})}
        return machine.run(*command, env=variables,
                           cwd=options.pop("cwd", self.shared), **options)

    def spawn(self, *command, node=None, **options):
        machine = self.head if node is None else self.nodes[node]
        variables = {**self.environment(), **options.pop("env", {})}
        return machine.spawn(*command, env=variables, cwd=options.pop("cwd", self.shared),
                             **options)

    def sbatch(self, *arguments):
        """Submits a job and returns its number."""
        return self.note_job(self.call("sbatch", "--parsable", *arguments).stdout)

    def note_job(self, number):
        self._jobs.append(int(number))
        return self._jobs[-1]

    def scontrol(self, *arguments, **options):
        return self.call("scontrol", *arguments, **options).stdout

    def job(self, number):
        """The fields that scontrol shows for a job; empty when Slurm has forgotten the job."""
        text = self.call("scontrol", "show", "job", "-o", number, check=False).stdout
        return dict(re.findall(r"(\S+?)=(\S*)", text))

    def job_state(self, number):
        return self.job(number).get("JobState", "")

    def release_if_held(self, number):
        """Releases a job that Slurm holds because its script did not start. A node that has come
        back may still have the job's earlier script ("Duplicate jobid"), and Slurm then waits for a
        person."""
        if self.job(number).get("Reason") == "launch_failed_requeued_held":
            self.scontrol("release", number)

    def wait_for_job(self, number, states, seconds):
        """Waits until the job is in one of the states; returns what scontrol says."""
        states = [states] if isinstance(states, str) else states

        def reached():
            job = self.job(number)
            return job if job.get("JobState") in states else None

        return wait_until(reached, seconds, lambda: f"job {number} {states}: {self.job(number)}")

    def node_states(self):
        """Node -> what sinfo says: idle, allocated, down*, draining ..."""
        text = self.call("sinfo", "-h", "-N", "-p", "cloud" if self.cloud else "batch", "-o",
                         "%N %T").stdout
        return dict(line.split() for line in text.splitlines())

    def wait_for_state(self, state, *names, seconds=60):
        wait_until(lambda: all(self.node_states().get(name) == state for name in names),
                   seconds, lambda: f"{names} {state}: {self.node_states()}")

    def clear(self):
        """Ends all jobs and mends all machines: the next test finds the cluster idle."""
        for number in self._jobs:
            self.call("scancel", "--signal=KILL", number, check=False)
            self.call("scancel", "--signal=KILL", "--batch", number, check=False)
            self.call("scancel", number, check=False)
        self._jobs = []
        for name in self.standing:
            self.mend(name)
        self.wait_for_state("idle", *self.standing)
        for name in self.cloud:
            self.nodes[name].power_off()
            self.scontrol("update", f"NodeName={name}", "State=POWER_DOWN_FORCE", check=False)
        wait_until(self.cloud_is_off, 60, lambda: f"{self.cloud} idle~: {self.node_states()}")

    def cloud_is_off(self):
        """Whether Slurm holds all nodes of the cloud for off and usable. Slurm may have given a
        node up before the node was switched off; this takes such a node back."""
        states = self.node_states()
        for name in self.cloud:
            if states.get(name, "").startswith("down"):
                self.scontrol("update", f"NodeName={name}", "State=RESUME", check=False)
        return all(states.get(name) == "idle~" for name in self.cloud)

    def mend(self, name):
        """Mends a node: it is on and connected, no process of it is stopped, and its daemon
        runs."""
        machine = self.nodes[name]
        if not machine.on:
            self.power_on(name)
            return
        self.connect(name)
        self.uncover(name)
        machine.run("rm", "-f", "/dev/shm/full")
        machine.run("mkdir", "-p", "-m", "1777", TEMPORARY)
        for pid in machine.processes():
            if machines.state_of(pid) == "T":
                kill_process(pid, signal.SIGCONT)
        if self.daemon(machine, "slurmd") is None:
            self.start_slurmd(name)
        if self.node_states().get(name, "").startswith("drain"):
            # Slurm takes the steps of a node that was cut off for steps that cannot be killed
            # ("Kill task failed") and waits for an administrator.
            self.scontrol("update", f"NodeName={name}", "State=RESUME", check=False)

    # Nodes and what becomes of them

    def daemon(self, machine, program):
        """The id of the daemon's process seen from outside; None when it does not run."""
        for pid in machine.processes():
            words = machines.arguments_of(pid)
            if words and pathlib.Path(words[0]).name == program:
                return pid
        return None

    def start_slurmd(self, name):
        # With -b Slurm believes that the machine has just booted.
        booted = ["-b"] if name in self.cloud else []
        self.nodes[name].run("slurmd", *booted, "-f", self._config, "-N", name,
                             env=self.environment())

    def power_on(self, name, firmware=None):
        """Switches a node on. `firmware` has the files by which the machine tells what it is."""
        machine = self.nodes[name]
        machine.start()
        machine.plug_in(self.head)
        machine.run("mkdir", "-p", "-m", "1777", TEMPORARY)
        if firmware:
            machine.run("mount", "-t", "tmpfs", "tmpfs", "/sys/devices/virtual")
            machine.run("mkdir", "-p", "/sys/devices/virtual/dmi/id")
        for file, text in (firmware or {}).items():
            machine.path_inside(f"/sys/devices/virtual/dmi/id/{file}").write_text(text + "\n")
        self.start_slurmd(name)

    def power_off(self, name):
        """Switches a node off, of which nobody is told."""
        self.cut(name)
        self.nodes[name].power_off()

    def kill_slurmd(self, name):
        kill_process(self.daemon(self.nodes[name], "slurmd"))

    def cut(self, name):
        """Cuts a node off: no message reaches it or leaves it."""
        self.head.run("ip", "link", "set", f"to-{name}", "down")

    def connect(self, name):
        self.head.run("ip", "link", "set", f"to-{name}", "master", "bridge0", "up")

    def cut_off_together(self, names):
        """Cuts these nodes off together: they reach each other, but no other node and not the
        head."""
        for name in names:
            self.head.run("ip", "link", "set", f"to-{name}", "master", "bridge1")

    def cover(self, name, path, read_only=False):
        """On this node alone, covers the path by an empty directory, or makes it read-only."""
        machine = self.nodes[name]
        self._covered.append((name, path))
        cover = f"/tmp/cover{len(self._covered)}"
        machine.run("mkdir", "-p", cover)
        if read_only:
            # The cover is made read-only before anybody sees it, since a file that is open for
            # writing would prevent that.
            machine.run("mount", "--bind", path, cover)
            machine.run("mount", "-o", "remount,bind,ro", cover)
        machine.run("mount", "--bind", cover, path)
        if read_only:
            machine.run("umount", "-l", cover)

    def uncover(self, name):
        """Removes all covers of a node, which then sees what the others see."""
        covered = [place for place in self._covered if place[0] == name]
        for place in reversed(covered):
            self._covered.remove(place)
            self.nodes[name].run("umount", "-l", place[1], check=False)

    # Workers

    def workers(self):
        """Rank -> (node, process id) of the ranks that train."""
        found = {}
        for name, machine in self.nodes.items():
            for pid in machine.processes() if machine.on else []:
                rank = rank_of(pid)
                if rank is not None and machines.state_of(pid) != "Z":
                    found[rank] = (name, pid)
        return dict(sorted(found.items()))

    def find(self, *words):
        """The (node, process id) of each process whose arguments contain these words in a row."""
        found = []
        for name, machine in self.nodes.items():
            for pid in machine.processes() if machine.on else []:
                arguments = machines.arguments_of(pid)
                arguments[:1] = [pathlib.Path(word).name for word in arguments[:1]]
                if any(tuple(arguments[i:i + len(words)]) == words
                       for i in range(len(arguments))):
                    found.append((name, pid))
        return found

    def logs(self):
        """The daemons' last lines, for a person who reads why a test failed."""
        text = []
        for path in sorted(self._root.glob("*.log")):
            with contextlib.suppress(OSError):
                last = path.read_text(errors="replace").splitlines()[-15:]
                text += [f"--- {path.name}", *last]
        return "\n".join(text)


def rank_of(pid):
    """The rank of a training process. Its title has the number; before the title is set, the
    environment has it."""
    words = machines.arguments_of(pid)
    title = re.match(r"longhaul rank (\d+)\b", " ".join(words))
    if title:
        return int(title[1])
    if words[1:2] != ["train"] or pathlib.Path(words[0]).name != "longhaul":
        return None
    rank = machines.environment_of(pid).get("SLURM_PROCID", "")
    return int(rank) if rank.isdigit() else None


def as_text(process):
    """The output and errors of a spawned command with pipes, once it has ended."""
    try:
        output, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, output, errors
