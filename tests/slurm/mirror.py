"""A store of objects on the cluster's head node, and what runs have mirrored there."""

import json
import os
import pathlib
import subprocess
import sys

from machines import wait_until

ADDRESS = ("10.77.0.1", 9000)
KEYS = ("LONGHAULTESTKEY", "secret-of-the-tests-5d04b86")


class ClusterStore:
    """rclone's server with a folder of the cluster behind it: buckets are directories."""

    def __init__(self, cluster):
        self.folder = cluster.shared / "objects"
        (self.folder / "runs").mkdir(parents=True, exist_ok=True)
        program = pathlib.Path(sys.executable).parent / "rclone"
        self._log = open(cluster.shared / "rclone.log", "ab")  # noqa: SIM115
        self._server = cluster.spawn(
            program, "serve", "s3", "--addr", "%s:%d" % ADDRESS, "--auth-key", ",".join(KEYS),
            self.folder, stdout=self._log, stderr=subprocess.STDOUT)
        wait_until(lambda: self._answers(cluster), 60, "the server of objects")

    @staticmethod
    def _answers(cluster):
        probe = f"import socket; socket.create_connection({ADDRESS}, 1)"
        return cluster.call(sys.executable, "-c", probe, check=False).returncode == 0

    def environment(self):
        return {"AWS_ENDPOINT_URL_S3": "http://%s:%d" % ADDRESS, "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": KEYS[0], "AWS_SECRET_ACCESS_KEY": KEYS[1],
                "AWS_EC2_METADATA_DISABLED": "true", "LONGHAUL_OBJECTS_PATIENCE": "20"}

    def address(self, name):
        return f"s3://runs/{name}"

    def whole_steps(self, name):
        """The steps whose manifest is in the store with all files that it names."""
        found = []
        for manifest in sorted((self.folder / "runs" / name).glob("step_*/manifest.a*.json")):
            content = json.loads(manifest.read_text())
            files = [content["state"], *content["hf"],
                     *(rank[part] for rank in content["ranks"] for part in ("data", "sidecar"))]
            sizes = {file["name"]: manifest.parent / file["name"] for file in files}
            if all(sizes[file["name"]].exists()
                   and os.path.getsize(sizes[file["name"]]) == file["size"] for file in files):
                found.append(content["step"])
        return sorted(set(found))

    def stop(self):
        self._server.kill()
        self._server.wait(10)
        self._log.close()
