"""The scripts of deploy/, run here against stand-ins for aws, enroot and mpirun; and the filling
of templates, which refuses what a person has not filled in."""

import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import tempfile
import time
import unittest
import zipfile

import deploy_examples
import house
from deploy_examples import DEPLOY, render

AWS = """#!/bin/bash
# aws s3 cp [--only-show-errors] FROM TO, with $BUCKETS/NAME in place of s3://NAME
set -e
[ "$1 $2" = "s3 cp" ] || exit 2
shift 2
[ "$1" = --only-show-errors ] && shift
from=${1/#s3:/$BUCKETS} to=${2/#s3:/$BUCKETS}
mkdir -p "$(dirname "$to")"
cp "$from" "$to"
"""
MPIRUN = """#!/bin/bash
# Ends with the next of the codes in $CODES; "wait" waits for SIGUSR1 and ends with 75.
echo "$*" >> "$CALLS"
code=$(head -n 1 "$CODES")
sed -i 1d "$CODES"
if [ "$code" = wait ]; then
  trap 'exit 75' USR1
  touch "$CALLS.ready"
  for _ in $(seq 300); do sleep 0.1; done
  exit 9
fi
exit "$code"
"""
ENROOT = """#!/bin/bash
[ "$1 $2" = "import --output" ] || exit 2
[ -z "$FAIL" ] || { echo part > "$3"; exit 1; }
echo "squashfs of $4" > "$3"
"""

PODMAN = """#!/bin/bash
# Notes what it is told to build, and of what.
echo "$*" >> "$CALLS"
[ "$1" != build ] || [ -f "${@: -1}/deploy/container/Containerfile" ]
"""


class Sandbox(unittest.TestCase):
    """A directory for each test, with stand-ins before everything else on PATH."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.dir = pathlib.Path(holder.name)
        self.env = {**os.environ, "PATH": f"{self.dir}/bin:{os.environ['PATH']}",
                    "BUCKETS": f"{self.dir}/s3", "LONGHAUL_NODE_ROOT": f"{self.dir}/node",
                    "LONGHAUL_RETRY_SECONDS": "0"}
        self.program("bin/aws", AWS)

    def program(self, name, text):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def run_script(self, *command, **extra):
        return subprocess.run([str(c) for c in command], env={**self.env, **extra}, text=True,
                              capture_output=True, timeout=60)

    def tree(self, name, version="longhaul 1.2.3", code=0):
        self.program(f"{name}/bin/longhaul", f"#!/bin/bash\necho '{version}'\nexit {code}\n")
        return self.dir / name


class BuiltImages(Sandbox):
    def build(self, *arguments):
        self.program("bin/podman", PODMAN)
        self.program("bin/enroot", ENROOT)
        tree = self.dir / "source"
        (tree / "deploy").mkdir(parents=True, exist_ok=True)
        if not (tree / "deploy/container").exists():
            os.symlink(DEPLOY / "container", tree / "deploy/container")
        done = subprocess.run(
            ["bash", "deploy/container/build_on_worker.sh", *arguments], cwd=tree, text=True,
            capture_output=True, timeout=60,
            env={**self.env, "CALLS": f"{self.dir}/calls", "FAIL": "", "SLURM_JOB_ID": "7"})
        calls = self.dir / "calls"
        return done, calls.read_text().splitlines() if calls.exists() else []

    def wheel(self, name, content):
        path = self.dir / "source/dist" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(content, b"x" * 100)

    def test_the_image_for_cpus_is_built_imported_and_removed_from_the_worker(self):
        image = self.dir / "images/a.sqsh"
        done, calls = self.build(image)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertTrue(calls[0].startswith("build --target longhaul --tag longhaul:build-7 "))
        self.assertEqual("rmi longhaul:build-7", calls[-1])
        self.assertEqual("squashfs of podman://localhost/longhaul:build-7\n", image.read_text())

    def test_the_image_for_gpus_takes_the_one_wheel_that_has_the_library_for_cuda(self):
        image = self.dir / "images/a.sqsh"
        for name, content, ok in (("none", None, False), ("of CPUs", "longhaul_train/bin/longhaul", False),
                                  ("of CUDA", "longhaul_train/bin/liblonghaul_cuda.so", True)):
            if content:
                self.wheel("longhaul_train-1-any.whl", content)
            done, calls = self.build(image, "longhaul-cuda")
            self.assertEqual(ok, done.returncode == 0, (name, done.stderr))
            self.assertEqual(ok, bool(calls), name)
            self.assertTrue(ok or "make wheel" in done.stderr, name)
        self.assertTrue(calls[0].startswith("build --target longhaul-cuda "), calls)
        self.wheel("longhaul_train-2-any.whl", "longhaul_train/bin/liblonghaul_cuda.so")
        self.assertEqual(1, self.build(image, "longhaul-cuda")[0].returncode)  # which one?

    def test_the_image_for_trainium_is_a_stage_of_its_own(self):
        done, calls = self.build(self.dir / "a.sqsh", "longhaul-neuron")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertTrue(calls[0].startswith("build --target longhaul-neuron "), calls)
        self.assertIn(" AS longhaul-neuron\n", (DEPLOY / "container/Containerfile").read_text())

    def test_another_stage_is_refused(self):
        done, calls = self.build(self.dir / "a.sqsh", "longhaul-rocm")
        self.assertEqual((2, []), (done.returncode, calls))


class Nodes(Sandbox):
    def upload(self, tree, target="s3://ann/longhaul"):
        done = self.run_script(DEPLOY / "node/upload.sh", tree, target)
        self.assertEqual(0, done.returncode, done.stderr)
        return f"{target}/{re.search(r'TREE = (.*)', done.stdout).group(1)}"

    def prepare(self, uri, **extra):
        return self.run_script(DEPLOY / "node/prepare_node.sh", uri, "/scratch", **extra)

    def current(self):
        return os.readlink(self.dir / "node/opt/longhaul")

    def test_an_uploaded_tree_is_what_a_node_runs(self):
        uri = self.upload(self.tree("first"))
        (self.dir / "node/scratch").mkdir(parents=True)
        done = self.prepare(uri)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("longhaul 1.2.3 in /opt/longhaul", done.stdout)
        self.assertEqual(uri.split("/")[-1], self.current() + ".tar.gz")
        self.assertTrue((self.dir / "node/opt/longhaul/bin/longhaul").stat().st_mode & stat.S_IXOTH)
        self.assertIn("memlock unlimited",
                      (self.dir / "node/etc/security/limits.d/longhaul.conf").read_text())
        self.assertEqual(0o1777, stat.S_IMODE((self.dir / "node/scratch").stat().st_mode))
        self.assertIn("ready", (self.dir / "node/var/log/longhaul-node.log").read_text())

    def test_a_name_on_the_loopback_gets_the_nodes_other_address_once(self):
        uri = self.upload(self.tree("first"))
        self.program("bin/hostname", '#!/bin/bash\n[ "$1" = -I ] && echo "$ADDRESSES" || echo n1\n')
        self.program("bin/getent", "#!/bin/bash\nawk -v n=\"$2\" '{ for (i = 2; i <= NF; i++) "
                                   "if ($i == n) { print; exit } }' \"$LONGHAUL_NODE_ROOT/etc/hosts\"\n")
        hosts = self.dir / "node/etc/hosts"
        hosts.parent.mkdir(parents=True)
        before = ("127.0.0.1 localhost n1.cluster n1 # the image\'s\n127.0.1.1 n1\n"
                  "::1 localhost\n10.0.0.7 n10\n")
        hosts.write_text(before)
        done = self.prepare(uri, ADDRESSES="")  # a node that has none is only told
        self.assertIn("warning: n1 is 127.0.0.1: other nodes would be sent", done.stdout)
        self.assertEqual(before, hosts.read_text())
        for _ in range(2):
            done = self.prepare(uri, ADDRESSES="fe80::1 10.0.0.5 172.17.0.1")
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertEqual("127.0.0.1 localhost\n::1 localhost\n10.0.0.7 n10\n10.0.0.5 n1\n",
                             hosts.read_text())
        self.assertNotIn("10.0.0.5 now", done.stdout)  # the second time there is nothing to mend

    def test_the_same_tree_has_the_same_name_and_another_another(self):
        tree = self.tree("first")
        first = self.upload(tree)
        os.utime(tree / "bin/longhaul", (1, 1))
        self.assertEqual(first, self.upload(tree))
        self.assertNotEqual(first, self.upload(self.tree("second", "longhaul 2")))

    def test_a_second_version_takes_over_and_the_first_stays(self):
        first = self.upload(self.tree("first"))
        second = self.upload(self.tree("second", "longhaul 2"))
        for uri in (first, second, second):
            self.assertEqual(0, self.prepare(uri).returncode)
        self.assertEqual(second.split("/")[-1], self.current() + ".tar.gz")
        self.assertEqual(3, len(list((self.dir / "node/opt").iterdir())))  # two and the link

    def test_a_changed_archive_is_refused_and_leaves_nothing(self):
        uri = self.upload(self.tree("first"))
        with open(self.dir / "s3" / uri[len("s3://"):], "ab") as archive:
            archive.write(b"x")
        done = self.prepare(uri)
        self.assertEqual(1, done.returncode)
        self.assertIn("not the one of its name", done.stderr + done.stdout)
        self.assertEqual([], list((self.dir / "node/opt").iterdir()))

    def test_a_tree_that_does_not_run_here_fails_the_node(self):
        uri = self.upload(self.tree("first"))
        broken = self.tree("first", code=127)
        subprocess.run(f"tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C {broken}"
                       f" -cf - . | gzip -n > {self.dir}/archive", shell=True, check=True)
        digest = subprocess.run(["sha256sum", self.dir / "archive"], capture_output=True,
                                text=True).stdout.split()[0]
        os.rename(self.dir / "archive", self.dir / f"s3/ann/longhaul/longhaul-{digest}.tar.gz")
        done = self.prepare(uri.rsplit("/", 1)[0] + f"/longhaul-{digest}.tar.gz")
        self.assertEqual(1, done.returncode)
        self.assertIn("does not run here", done.stderr + done.stdout)
        self.assertFalse((self.dir / "node/opt/longhaul").exists())

    def test_a_missing_object_is_tried_five_times_and_names_the_right_that_lacks(self):
        done = self.prepare("s3://ann/longhaul/longhaul-" + "0" * 64 + ".tar.gz")
        self.assertEqual(1, done.returncode)
        self.assertEqual(5, done.stdout.count("download failed"))
        self.assertIn("s3:GetObject", done.stderr + done.stdout)

    def test_names_without_a_hash_and_trees_without_a_program_are_refused(self):
        self.assertEqual(1, self.prepare("s3://ann/longhaul.tar.gz").returncode)
        (self.dir / "empty").mkdir()
        self.assertEqual(1, self.run_script(DEPLOY / "node/upload.sh", self.dir / "empty",
                                            "s3://ann/x").returncode)
        self.assertEqual(2, self.run_script(DEPLOY / "node/upload.sh", self.tree("first"),
                                            "/shared/x").returncode)

    def test_a_trainium_gets_the_driver_that_its_image_lacks_and_trn1_a_warning(self):
        self.program("bin/curl", "#!/bin/bash\necho key\n")
        self.program("bin/gpg", '#!/bin/bash\ncp "${@: -1}" "${@: -2:1}"\n')
        self.program("bin/apt-get", '#!/bin/bash\necho "$*" >> "$CALLS"\n')
        self.program("bin/modprobe", '#!/bin/bash\necho "modprobe $*" >> "$CALLS"\n[ -z "$DRIVER" ] ||'
                     ' touch "$LONGHAUL_NODE_ROOT/dev/neuron0"\n')
        uri, calls = self.upload(self.tree("first")), self.dir / "calls"
        for name, text in (("sys/class/dmi/id/product_name", "trn2.48xlarge\n"), ("dev/null", ""),
                           ("etc/os-release", "ID=ubuntu\nVERSION_CODENAME=resolute\n")):
            self.program(f"node/{name}", text)
        done = self.prepare(uri, CALLS=str(calls), DRIVER="")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("warning: no /dev/neuron0", done.stdout)
        self.assertIn("longhaul-node: ready", done.stdout)
        self.assertNotIn("warning: no /dev/neuron0", self.prepare(uri, CALLS=str(calls), DRIVER="1").stdout)
        said = calls.read_text()
        for name in ("dkms", "runtime-lib", "collectives", "tools"):
            self.assertEqual(2, said.count(f"aws-neuronx-{name}"), said)
        self.assertIn(".neuron.amazonaws.com resolute main",
                      (self.dir / "node/etc/apt/sources.list.d/neuron.list").read_text())
        self.prepare(uri, CALLS=str(calls), DRIVER="1")  # the driver is there: nothing to install
        self.assertEqual(said, calls.read_text())
        self.program("node/sys/class/dmi/id/product_name", "trn1.32xlarge\n")
        self.assertIn("does not train on trn1.32xlarge: take trn2", self.prepare(uri).stdout)

    def test_hyperpods_script_installs_what_lies_beside_it(self):
        self.upload(self.tree("first"))
        done = self.run_script("bash", self.dir / "s3/ann/longhaul/on_create.sh")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("longhaul 1.2.3 in /opt/longhaul", done.stdout)


class Images(Sandbox):
    def test_an_image_appears_whole_or_not_at_all(self):
        self.program("bin/enroot", ENROOT)
        script, target = DEPLOY / "container/import_enroot.sh", self.dir / "images/longhaul.sqsh"
        self.assertEqual(1, self.run_script(script, "longhaul:1", target, FAIL="1").returncode)
        self.assertEqual([], list(target.parent.iterdir()))
        for builder, uri in (("docker", "dockerd://longhaul:1"),
                             ("podman", "podman://localhost/longhaul:1")):
            self.assertEqual(0, self.run_script(script, "longhaul:1", target, builder,
                                                FAIL="").returncode)
            self.assertEqual(f"squashfs of {uri}\n", target.read_text())
        self.assertEqual(2, self.run_script(script, "longhaul:1", target, "kaniko").returncode)


class Launcher(Sandbox):
    """Tests of launcher.sh, as it stands in the filled ConfigMap."""

    def setUp(self):
        super().setUp()
        self.program("bin/mpirun", MPIRUN)
        text = deploy_examples.filled("kubernetes")
        body = re.search(r"\n  launcher\.sh: \|\n((?:    .*\n|\n)+)", text).group(1)
        self.script = self.program("launcher.sh", re.sub(r"(?m)^    ", "", body))
        self.program("home/.ssh/id_rsa.pub", "ecdsa-sha2-nistp521 AAAA job@host\n")
        self.env.update(HOME=f"{self.dir}/home", KNOWN_HOSTS=f"{self.dir}/known",
                        CODES=f"{self.dir}/codes", CALLS=f"{self.dir}/calls",
                        PAUSE_SECONDS="0", MOST_RESTARTS="3")

    def launch(self, *codes):
        (self.dir / "codes").write_text("".join(f"{c}\n" for c in codes))
        done = self.run_script(self.script)
        return done.returncode, len((self.dir / "calls").read_text().splitlines())

    def test_success_ends_it_and_the_jobs_key_is_the_only_known_host(self):
        self.assertEqual((0, 1), self.launch(0))
        self.assertEqual("--bind-to none longhaul train /etc/longhaul/run/run.toml\n",
                         (self.dir / "calls").read_text())
        self.assertEqual("* ecdsa-sha2-nistp521 AAAA\n", (self.dir / "known").read_text())

    def test_a_temporary_failure_or_a_killed_rank_starts_it_again(self):
        self.assertEqual((0, 3), self.launch(75, 137, 0))

    def test_a_wrong_setting_is_not_tried_again(self):
        self.assertEqual((78, 2), self.launch(75, 78, 0))

    def test_after_the_file_stop_nobody_starts_it_again(self):
        self.assertEqual((0, 2), self.launch(75, 79, 0))

    def test_it_gives_up_after_the_allowed_restarts(self):
        self.assertEqual((75, 4), self.launch(75, 75, 75, 75, 75))

    def test_sigterm_reaches_the_ranks_as_a_save_and_nothing_starts_again(self):
        (self.dir / "codes").write_text("wait\n0\n")
        child = subprocess.Popen(["bash", str(self.script)], env=self.env,
                                 stdout=subprocess.PIPE, text=True)
        ready = self.dir / "calls.ready"
        for _ in range(200):
            if ready.exists():
                break
            time.sleep(0.05)
        child.send_signal(signal.SIGTERM)
        output, _ = child.communicate(timeout=20)
        self.assertEqual(75, child.returncode)
        self.assertIn("told to stop", output)
        self.assertNotIn("; restart", output)
        self.assertEqual(1, len((self.dir / "calls").read_text().splitlines()))


class Filling(Sandbox):
    def refusal(self, kind, text):
        path = self.dir / "parameters.env"
        path.write_text(text)
        with self.assertRaises(render.Refused) as caught:
            render.render(DEPLOY / kind / deploy_examples.TEMPLATES[kind], path)
        return str(caught.exception)

    def test_what_is_not_filled_in_is_refused_all_at_once(self):
        for kind, examples in deploy_examples.EXAMPLES.items():
            found = self.refusal(kind, (DEPLOY / kind / "parameters.env").read_text())
            for name in examples:
                self.assertIn(f"{name} is still FILL_IN", found)

    def test_filled_files_have_no_open_place(self):
        for kind in deploy_examples.EXAMPLES:
            text = deploy_examples.filled(kind)
            self.assertNotRegex(text, r"FILL_IN|@[A-Z_0-9]+@|#@")

    def test_a_value_without_its_form_is_refused_with_the_line(self):
        for name, value in (("HEAD_SUBNET", "subnet-1"), ("SSH_FROM", "0.0.0.0/0"),
                            ("BUCKET", "Ann"), ("QUEUES", "trn1 p4d"), ("STORAGE", "nfs"),
                            ("TREE", "longhaul.tar.gz")):
            found = self.refusal("parallelcluster",
                                 deploy_examples.parameters("parallelcluster", **{name: value}))
            self.assertRegex(found, rf"^{re.escape(str(self.dir))}.*:\d+: {name} = '{value}' does "
                                    "not look like")

    def test_a_name_set_twice_or_missing_or_without_form_is_refused(self):
        good = deploy_examples.parameters("parallelcluster")
        self.assertIn("was set before", self.refusal("parallelcluster",
                                                     good + "# form: .*\nREGION = x\n"))
        self.assertIn("EXTRA has no '# form:'", self.refusal("parallelcluster",
                                                             good + "EXTRA = 1\n"))
        self.assertIn("TREE missing", self.refusal(
            "parallelcluster", re.sub(r"(?m)^TREE = .*\n", "", good)))

    def test_each_queue_and_file_system_is_in_the_result_once(self):
        text = deploy_examples.filled("parallelcluster", QUEUES="trn2 p5-block", STORAGE="efs")
        self.assertEqual(["trn2", "p5-block", "shared"], re.findall(r"(?m)^ {2,4}- Name: (\S+)$",
                                                                    text))
        self.assertIn("MountDir: /efs", text)
        self.assertNotIn("Lustre", text)

    def test_a_reservation_stands_in_each_queue_that_has_one_and_nowhere_else(self):
        one, other = "cr-0123456789abcdef0", "cr-0123456789abcdef1"
        text = deploy_examples.filled("parallelcluster", TRN2_RESERVATION=one, P5_RESERVATION=other)
        self.assertEqual([one, other], re.findall(r"CapacityReservationId: (\S+)", text))
        queues = re.split(r"(?m)^    - Name: ", text)[1:]
        self.assertEqual({"trn2": 1, "p4d": 0, "p5": 1},
                         {q.split("\n")[0]: q.count("          CapacityReservationTarget:\n")
                          for q in queues})
        plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/ours"
        for given in (plan, ""):
            groups = json.loads(deploy_examples.filled("hyperpod", TRAINING_PLAN=given))
            self.assertEqual([None, given or None],
                             [g.get("TrainingPlanArn") for g in groups["InstanceGroups"]])
        self.assertNotIn("CapacityReservation", deploy_examples.filled("parallelcluster"))

    def test_dynamic_queues_start_from_no_node(self):
        text = deploy_examples.filled("parallelcluster", QUEUES="trn2 p4d p5")
        self.assertEqual(["0", "0", "0"], re.findall(r"MinCount: (\d+)", text))


class Honesty(unittest.TestCase):
    def test_every_file_for_a_cluster_says_what_was_tried(self):
        for name in house.files(".sh", ".yaml.in", "Containerfile"):
            if not name.startswith("deploy/"):
                continue
            if re.search(r"/(queue|storage|resources)-", name):
                continue  # parts of a file that says it
            self.assertRegex(house.text(name), r"(?s)Tried: .*Untried: ", name)


if __name__ == "__main__":
    unittest.main()
