"""Slow, huge, malformed and half-open requests, a thousand connections and clients that leave cost a
server little, and the next request is answered"""

import contextlib
import json
import resource
import select
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


def written(**body):
    """A completion request as its bytes, behind which the connection ends."""
    text = json.dumps(body).encode()
    return (b"POST /v1/completions HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            % len(text) + text)


def received(client):
    """The (status, body) that a connection brings until it ends."""
    said = b""
    while part := client.recv(1 << 16):
        said += part
    head, _, body = said.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_sequences_while_tokens_come(stand_in, stream):
    with stand_in.connect() as client:
        client.sendall(written(prompt=["a", "b"], max_tokens=4000, stream=stream))
        numbers = stand_in.asked()
    for _ in range(500):
        stand_in.say([{"number": number, "id": 5} for number in numbers])
        if select.select([stand_in.socket], [], [], 0.02)[0]:
            break
    else:
        pytest.fail("500 tokens of each sequence later nothing is cancelled")
    assert [json.loads(stand_in.hear()) for _ in numbers] == [{"cancel": number} for number in numbers]


def test_a_client_that_closes_its_own_end_alone_gets_408(stand_in):
    with stand_in.connect() as client:
        client.sendall(written(prompt="a"))
        stand_in.asked()
        client.shutdown(socket.SHUT_WR)
        status, body = received(client)
    assert status == 408 and "is closed" in json.loads(body)["error"]["message"]


def test_what_waits_when_the_server_ends_gets_503(stand_in):
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(stand_in.connect()) for _ in range(20)]
        for client in clients:
            client.sendall(written(prompt="a"))
            stand_in.asked()
        assert stand_in.end() == (0, "")
        for client in clients:
            status, body = received(client)
            assert status == 503 and "has ended" in json.loads(body)["error"]["message"]


def test_the_parts_of_a_stream_end_each_choice_once(stand_in):
    stop, = stand_in.post("/tokenize", {"prompt": "!", "add_special_tokens": False})["tokens"]
    with stand_in.connect() as client:
        client.sendall(written(prompt=["a", "b"], stop="!", stream=True))
        a, b = stand_in.asked()
        # What follows the stop was computed before its sequence could be cancelled.
        stand_in.say([*[{"number": a, "id": stop}] * 3, {"number": a, "id": 5, "end": "length"},
                      {"number": b, "id": 5, "end": "length"}])
        status, body = received(client)
    assert status == 200
    parts = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    ends = [(choice["index"], choice["finish_reason"]) for part in parts for choice in part["choices"]]
    assert ends == [(0, "stop"), (1, "length")]


def test_an_id_without_a_token_adds_no_text(stand_in):
    # The model's vocabulary is padded: it has 640 ids, and the tokenizer 600 tokens.
    with stand_in.connect() as client:
        client.sendall(written(prompt=[630, 50], max_tokens=2, logprobs=1, echo=True))
        number, = stand_in.asked()
        stand_in.say([{"number": number, "scores": [[-1, -0.5, 639]]},
                      {"number": number, "id": 631, "log_prob": -2, "top": [[632, -1]]},
                      {"number": number, "id": 50, "log_prob": -2, "top": [[50, -2]], "end": "length"}])
        status, body = received(client)
    assert status == 200, body
    choice, = json.loads(body)["choices"]
    token = stand_in.post("/detokenize", {"tokens": [50]})["prompt"]
    assert (choice["text"], choice["logprobs"]["tokens"]) == (2 * token, ["", token, "", token])
    assert choice["logprobs"]["token_logprobs"] == [None, -1, -2, -2]


def test_a_request_that_asks_for_more_than_has_room_is_refused_by_its_number(stand_in):
    large = {"prompt": [[5]] * 4096, "max_tokens": 999, "logprobs": 20}
    message = stand_in.refused("/v1/completions", large)
    assert f"is of {4096 * 1000 * 22} tokens and log-probabilities" in message
    with stand_in.connect() as client:
        client.sendall(written(**{**large, "max_tokens": 99}))
        stand_in.asked()
        assert "have no room" in stand_in.refused("/v1/completions", {**large, "max_tokens": 99}, 503)


@pytest.mark.soak
def test_more_slow_clients_than_are_served_at_one_time_lock_nobody_out(stand_in):
    done = threading.Event()

    def send_slowly(client, head):
        with contextlib.suppress(OSError):
            client.sendall(head)
            while not done.wait(1):
                client.sendall(b"0")

    with contextlib.ExitStack() as stack:
        for number in range(400):
            client = stack.enter_context(stand_in.connect())
            head = b"POST /v1/completions HTTP/1.1\r\n"
            head += b"Transfer-Encoding: chunked\r\n\r\n" if number % 2 else b"A: "
            threading.Thread(target=send_slowly, args=(client, head), daemon=True).start()
        assert stand_in.get("/health") == {"status": "ok"}
        done.set()


def test_more_than_has_room_gets_503(server, answered):
    busy = {"prompt": [[5]] * 3000, "max_tokens": 60}
    with server.connect() as client:
        client.sendall(written(**busy, stream=True))
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
