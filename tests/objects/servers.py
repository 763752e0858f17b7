"""Two servers of an object store on loopback, and what a test does with one."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import time

import boto3
import botocore.config

ACCESS_KEY = "LONGHAULTESTKEY"
# Tests look for this secret in all that the program has written, so no other text may contain it.
SECRET_KEY = "secret-7f3a9c2e51d04b86-of-the-tests"
REGION = "us-east-1"
HOST = "127.0.0.1"
BUCKET = "corpus"
SECONDS_TO_START = 60


def free_port():
    """A port of loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def forget_other_stores():
    """Removes from the tests' environment the variables that name another store, its keys or its
    authorities."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE",
                                               "REQUESTS_CA_BUNDLE"):
            del os.environ[name]


def program_of_python(name):
    """A program that came with a package of this Python."""
    path = pathlib.Path(sys.executable).parent / name
    assert path.exists(), f"{path} is missing: tools/deps.sh installs what the tests need"
    return path


def environment(home, endpoint, certificates=None, patience=None, secret=SECRET_KEY, token=None):
    """The environment in which a program finds this store, and no other file or server of
    credentials."""
    home.mkdir(parents=True, exist_ok=True)
    found = {
        "AWS_ENDPOINT_URL_S3": endpoint, "AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": secret, "AWS_EC2_METADATA_DISABLED": "true",
        "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "no_proxy": HOST,
        "NO_PROXY": HOST,
    }
    if token:
        found["AWS_SESSION_TOKEN"] = token
    if certificates:
        found["AWS_CA_BUNDLE"] = str(certificates)
    if patience is not None:
        found["LONGHAUL_OBJECTS_PATIENCE"] = str(patience)
    return found


def client_of(endpoint, certificates=None, **more):
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name=REGION, aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY, verify=str(certificates) if certificates else None,
        config=botocore.config.Config(
            # rclone sends the whole object's checksum with a part of it.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            retries={"total_max_attempts": 1}, max_pool_connections=32,
            s3={"addressing_style": "path"}, **more))


class Store:
    """A server's bucket, as the tests themselves read and write it."""

    def __init__(self, name, endpoint):
        self.name = name
        self.endpoint = endpoint
        self.client = client_of(endpoint)

    def make_bucket(self, bucket=BUCKET):
        with contextlib.suppress(self.client.exceptions.BucketAlreadyOwnedByYou,
                                 self.client.exceptions.BucketAlreadyExists):
            self.client.create_bucket(Bucket=bucket)

    def put(self, key, content, bucket=BUCKET):
        self.client.put_object(Bucket=bucket, Key=key, Body=content)

    def put_file(self, key, path, bucket=BUCKET):
        self.put(key, pathlib.Path(path).read_bytes(), bucket)

    def put_folder(self, prefix, folder, bucket=BUCKET):
        """Writes all files below a folder as objects, under the same names below a prefix."""
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_file():
                self.put_file(f"{prefix}/{path.relative_to(folder).as_posix()}", path, bucket)

    def get(self, key, bucket=BUCKET):
        return self.client.get_object(Bucket=bucket, Key=key)["Body"].read()

    def get_folder(self, prefix, folder, bucket=BUCKET):
        for key in self.keys(prefix + "/", bucket):
            path = pathlib.Path(folder) / key.removeprefix(prefix + "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.get(key, bucket))

    def sizes(self, prefix="", bucket=BUCKET):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", [])}

    def keys(self, prefix="", bucket=BUCKET):
        return sorted(self.sizes(prefix, bucket))

    def version(self, key, bucket=BUCKET):
        return self.client.head_object(Bucket=bucket, Key=key)["ETag"]

    def remove(self, key, bucket=BUCKET):
        self.client.delete_object(Bucket=bucket, Key=key)

    def remove_all(self, prefix="", bucket=BUCKET):
        # rclone's server lists a directory that has become empty as an object of no bytes.
        for key, size in self.sizes(prefix, bucket).items():
            if size > 0:
                self.remove(key, bucket)

    def begin_upload(self, key, part, bucket=BUCKET):
        """Begins an upload as a writer does that is killed in the middle: it leaves one part and no
        end."""
        upload = self.client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
        self.client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=part)
        return upload

    def uploads(self, bucket=BUCKET):
        """The keys of uploads that were begun and not ended."""
        listed = self.client.list_multipart_uploads(Bucket=bucket)
        return sorted(entry["Key"] for entry in listed.get("Uploads", []))


def command_of(name, port, folder):
    if name == "moto":
        return [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
    keys = [] if name == "open" else ["--auth-key", f"{ACCESS_KEY},{SECRET_KEY}"]
    return [program_of_python("rclone"), "serve", "s3", "--addr", f"{HOST}:{port}", *keys,
            "--config", os.devnull, "--cache-dir", folder / "cache", "--dir-cache-time", "1s",
            folder / "data"]


def wait_until_it_answers(process, port, log):
    limit = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < limit:
        assert process.poll() is None, f"the server ended:\n{log.read_text()}"
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(f"no server within {SECONDS_TO_START} s:\n{log.read_text()}")


@contextlib.contextmanager
def serve(name, folder):
    """Runs "moto", which keeps objects in memory, "rclone", which keeps them as files and checks
    signatures, or "open", which is rclone without keys. It has one empty bucket. Yields the
    Store."""
    (folder / "data").mkdir(parents=True)
    port, log = free_port(), folder / "log.txt"
    with log.open("wb") as out:
        process = subprocess.Popen(list(map(str, command_of(name, port, folder))), stdout=out,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   env={**os.environ, "HOME": str(folder)})
    try:
        wait_until_it_answers(process, port, log)
        store = Store(name, f"http://{HOST}:{port}")
        store.make_bucket()
        yield store
    finally:
        process.kill()
        process.wait(timeout=30)
