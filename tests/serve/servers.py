"""Starts `longhaul serve`, and speaks to it."""

import contextlib
import http.client
import json
import re
import select
import signal
import socket
import struct
import subprocess
import time

from programs import BIN, command_of

LIMIT = 120
STARTED = re.compile(r"serving .* at http://[^ ]*:(\d+) \(")


class Server:
    def __init__(self, arguments, ranks=1, **environment):
        self.ranks = ranks
        command, inherited = command_of("longhaul", ["serve", *arguments, "--port", 0], ranks)
        self.process = subprocess.Popen(command, env={**inherited, **environment}, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.port = self.await_start()

    def await_start(self):
        ready, _, _ = select.select([self.process.stdout], [], [], LIMIT)
        line = self.process.stdout.readline() if ready else ""
        found = STARTED.match(line)
        if not found:
            self.process.kill()
            raise AssertionError(f"no server: {line!r} {self.process.communicate()}")
        assert "for evaluation, not for production" in line
        return int(found[1])

    def request(self, path, body=None, headers=None, method=None):
        """(status, text) of a request; a body that is no text is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        with contextlib.closing(connection):
            if body is not None and not isinstance(body, (str, bytes)):
                body = json.dumps(body)
            connection.request(method or ("GET" if body is None else "POST"), path, body,
                               headers or {})
            response = connection.getresponse()
            return response.status, response.read().decode()

    def post(self, path, body):
        """The answer to a request that goes well."""
        status, text = self.request(path, body)
        assert status == 200, text
        return json.loads(text)

    def get(self, path):
        status, text = self.request(path)
        assert status == 200, text
        return json.loads(text)

    def complete(self, prompt, **options):
        """The choices of a completion, in the order of the prompts."""
        answer = self.post("/v1/completions", {"prompt": prompt, "temperature": 0, **options})
        return sorted(answer["choices"], key=lambda choice: choice["index"])

    def refused(self, path, body, status=400):
        """The message of a request that is refused."""
        found, text = self.request(path, body)
        assert found == status, (found, text)
        error = json.loads(text)["error"]
        assert error["code"] == status
        return error["message"]

    def stream(self, path, body):
        """The parts of a stream, which ends as streams do."""
        status, text = self.request(path, {**body, "stream": True})
        assert status == 200, text
        parts = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
        assert parts.pop() == "[DONE]"
        return [json.loads(part) for part in parts]

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)

    def children(self, name):
        """The processes below this one whose program has this name."""
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            for task in (f"/proc/{pid}/task/{pid}/children",):
                with contextlib.suppress(FileNotFoundError), open(task) as file:
                    below = [int(word) for word in file.read().split()]
                    todo += below
                    found += [child for child in below if program_of(child) == name]
        return found

    def end(self, number=signal.SIGINT):
        """Ends the server by a signal; (exit code, standard error)."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self):
        _, errors = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, errors

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        if self.process.poll() is None:
            code, errors = self.end()
            if problem[0] is None and self.ranks == 1:  # mpirun has codes of its own
                assert code == 0, errors


class StandIn(Server):
    """longhaul-serve, whose rank 0 the test is (longhaul/serve/protocol.h)."""

    def __init__(self, model, **served):
        self.ranks, (self.socket, other) = 1, socket.socketpair()
        with other:
            self.process = subprocess.Popen(
                ["bash", "-c", 'exec "$0" 3<&"$1"', BIN / "longhaul-serve", str(other.fileno())],
                pass_fds=[other.fileno()], stderr=subprocess.PIPE, text=True)
        self.say({"model": "m", "tokenizer": str(model / "tokenizer.json"), "vocab_size": 640,
                  "max_length": 4096, "eos_ids": [1], "chat_problem": "none", "end_of_turn": -1,
                  "host": "127.0.0.1", "port": 0, "token": "", **served})
        mark, *port = self.hear()
        assert mark == "A", (mark, port)
        self.port = int("".join(port))

    def say(self, message):
        text = json.dumps(message).encode()
        self.socket.sendall(struct.pack("=Q", len(text)) + text)

    def hear(self):
        """The next message; waits for it."""
        def exactly(size):
            data = b""
            while len(data) < size:
                assert select.select([self.socket], [], [], LIMIT)[0], "longhaul-serve says nothing"
                part = self.socket.recv(size - len(data))
                assert part, "longhaul-serve has ended"
                data += part
            return data
        return exactly(*struct.unpack("=Q", exactly(8))).decode()

    def asked(self):
        """The numbers of the sequences of the next request."""
        return [sequence["number"] for sequence in json.loads(self.hear())["sequences"]]

    def end(self, number=None):
        self.socket.close()
        return self.ended()


def program_of(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
        return file.read().strip()
    return ""


def memory_of(pid):
    """The most resident memory that a process has had, in bytes."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def until(condition, what):
    limit = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < limit, what
        time.sleep(0.05)
