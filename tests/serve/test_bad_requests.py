"""Slow, huge, malformed and half-open requests, a thousand connections and clients that leave cost a
server little, and the next request is answered"""

import contextlib
import json
import resource
import socket
import threading

import pytest
from servers import memory_of

MB = 1_000_000


@pytest.fixture
def answered(server):
    """Whatever a test sends: afterwards the next request is answered, and memory is bounded."""
    wanted = server.complete("The", max_tokens=4)
    yield
    assert server.complete("The", max_tokens=4) == wanted
    http, = server.children("longhaul-serve")
    assert memory_of(http) < 600 * MB
    assert server.process.poll() is None


@pytest.mark.parametrize("body,words", [
    ("", ["the body"]), ("{", ["the body", "byte"]), ('{"prompt": "\xff"}'.encode("latin-1"), ["body"]),
    ("[" * 100_000, ["nested"]), ({"prompt": [600]}, ["id 600", "600 ids"]),
    ({"prompt": [5] * 129}, ["129 tokens", "128"]),
    ({"prompt": [5] * 100, "max_tokens": 30}, ["100 tokens", "max_tokens is 30", "128"]),
    ({"prompt": "x", "max_tokens": 0}, ["max_tokens is 0"]),
    ({"prompt": "x", "n": 3}, ["n is 3", "does not do"]),
    ({"prompt": "x", "tempreature": 0}, ["tempreature"]),
    ({"prompt": {"a": 1}}, ["prompt is"]),
], ids=range(11))
def test_a_wrong_body_is_refused_by_what_is_wrong(server, answered, body, words):
    message = server.refused("/v1/completions", body)
    for word in words:
        assert word in message


def test_no_file_is_served(server, answered):
    for path in ("/", "/etc/passwd", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/config.json",
                 "/v1", "/v1/completions"):
        status, text = server.request(path)
        assert status in (400, 404) and "root:" not in text and "vocab" not in text
        assert json.loads(text)["error"]["code"] == status


@pytest.mark.parametrize("text", [
    b"\0\1\2\3\r\n\r\n", b"GET\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 10_000 + b"\r\n",
], ids=range(7))
def test_what_is_no_http_is_not_answered_for_long(server, answered, text):
    with server.connect() as client, contextlib.suppress(ConnectionError):
        client.sendall(text)
        client.shutdown(socket.SHUT_WR)
        while client.recv(1 << 16):
            pass


def test_a_body_that_is_too_large_is_refused(server, answered):
    with server.connect() as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n")
        assert b" 413 " in client.recv(1 << 16)
    with server.connect() as client, contextlib.suppress(ConnectionError):
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(20):  # the server closes in the middle
            client.sendall(b"100000\r\n" + b"x" * 0x100000 + b"\r\n")


def test_half_a_request_holds_nobody_up(server, answered):
    with contextlib.ExitStack() as stack:
        for number in range(40):
            client = stack.enter_context(server.connect())
            client.sendall([b"", b"POST /v1/comp", b"POST /v1/completions HTTP/1.1\r\nContent-Le",
                            b"POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"][number % 4])
        assert server.complete("The", max_tokens=2)


@pytest.mark.soak
def test_a_thousand_connections(server, answered):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with contextlib.ExitStack() as stack:
        for number in range(1000):
            client = stack.enter_context(server.connect())
            client.sendall(b"POST /v1/completions HTTP/1.1\r\n" if number % 2 else b"")
        assert server.complete("The", max_tokens=2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_client_that_leaves_ends_its_sequences(server, answered):
    # Many long texts, for which nobody waits: the next request comes first.
    body = json.dumps({"prompt": ["a"] * 500, "max_tokens": 100}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    for stream in (False, True):
        if stream:
            body = body[:-1] + b', "stream": true}'
            head = b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        with server.connect() as client:
            client.sendall(head + body)
            if stream:
                assert b"data: " in client.recv(1 << 12) + client.recv(1 << 12)
    assert server.complete("The", max_tokens=2)


def test_more_than_has_room_gets_503(server, answered):
    busy = {"prompt": [[5]] * 3000, "max_tokens": 60}
    with server.connect() as client:
        body = json.dumps({**busy, "stream": True}).encode()
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        said = b""
        while b"data: " not in said:  # the first are computed, the others wait
            said += client.recv(1 << 16)
        assert "wait already" in server.refused("/v1/completions", busy, 503)


def test_threads_that_ask_at_once_are_all_answered(server, answered):
    done = []
    threads = [threading.Thread(target=lambda: done.append(server.complete("x", max_tokens=1)))
               for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 60
