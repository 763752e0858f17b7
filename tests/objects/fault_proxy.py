"""A proxy in front of a server of objects that breaks requests by rules, and counts them."""

import contextlib
import dataclasses
import datetime
import hashlib
import http.client
import http.server
import ipaddress
import random
import re
import socket
import ssl
import struct
import threading
import time
import urllib.parse

PIECE = 65536
# The errors by which a connection ends that the client or the proxy has cut off.
CUT = (OSError, http.client.HTTPException, ssl.SSLError)
# Errors as Amazon's store answers them: code -> (status, message).
ANSWERS = {
    "SlowDown": (503, "Please reduce your request rate."),
    "InternalError": (500, "We encountered an internal error. Please try again."),
    "ExpiredToken": (400, "The provided token has expired."),
    "RequestTimeout": (
        400, "Your socket connection to the server was not read from or written to in time."),
    "RequestTimeTooSkewed": (
        403, "The difference between the request time and the current time is too large."),
    "AccessDenied": (403, "Access Denied"),
    "InvalidAccessKeyId": (
        403, "The AWS Access Key Id you provided does not exist in our records."),
    "NoSuchBucket": (404, "The specified bucket does not exist"),
}
# The region of the bucket according to the fault "elsewhere".
ELSEWHERE = "eu-central-1"


def error_text(code, message, path):
    """The body of a store's error for a request for BUCKET/KEY."""
    return (f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code>'
            f"<Message>{message}</Message><Resource>/{path}</Resource>"
            "<RequestId>4442587FB7D0A2F9</RequestId></Error>").encode()


@dataclasses.dataclass
class Rule:
    """What is done to the requests that match.

    fault: a code of ANSWERS; "reset" (before the answer), "reset_in_body", "truncated" (the right
    Content-Length and fewer bytes), "longer" or "shorter" (a Content-Length that is wrong by
    `bytes`), "whole" (the range that was asked for is overlooked), "stall" (nothing for `seconds`
    in the middle of the body), "slow" (`seconds` before the answer), "cut_upload" (the connection
    is reset when `bytes` of the request's body have come), "call" (`call` runs between the
    server's sound answer and its end at the client), "flip" (one bit of the body is wrong, each time
    another one), "other" (the bytes `content` come in place of those of the object), "again" (the
    first answer comes again), "opaque" (the ETag is `content` and another MD5 than that of the bytes), or "elsewhere"
    (the bucket is in another region).
    """
    fault: str
    methods: tuple = ("GET",)
    keys: str = ""               # pattern that is searched in BUCKET/KEY
    signer: str = ""             # whose key the request is signed with
    query: str = ""              # pattern that is searched in the query
    nth: tuple = ()              # which of the requests that match, from 1 on; () for all
    first: int = 1               # and none before this one
    times: int | None = None     # and so many at most
    share: float = 1.0           # and of these a share, by the proxy's seed
    seconds: float = 0.0
    bytes: int = 1000
    call: object = None
    content: bytes = b""
    matched: int = 0
    done: int = 0

    def takes(self, request, chance):
        if (request.method not in self.methods or not re.search(self.keys, request.path)
                or not re.search(self.query, request.query)
                or self.signer not in request.signer):
            return False
        self.matched += 1
        if (self.matched < self.first or (self.nth and self.matched not in self.nth)
                or (self.times is not None and self.done >= self.times)
                or (self.share < 1 and chance.random() >= self.share)):
            return False
        self.done += 1
        return True


@dataclasses.dataclass
class Request:
    method: str
    path: str    # BUCKET/KEY
    query: str
    range: str
    signer: str
    fault: str = ""
    status: int = 0
    sent: int = 0       # bytes of the answer's body
    received: int = 0   # bytes of the request's body


class Cut(Exception):
    """Raised where the proxy resets the connection."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 120
    wbufsize = PIECE
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def setup(self):
        if self.server.tls:
            self.request.settimeout(20)
            self.request = self.server.tls.wrap_socket(self.request, server_side=True)
        super().setup()
        self.server.proxy.opened(self.request)
        self.behind = None

    def handle_expect_100(self):
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def handle(self):
        with contextlib.suppress(*CUT):
            super().handle()

    def finish(self):
        if self.behind:
            self.behind.close()
        with contextlib.suppress(*CUT, ValueError):
            super().finish()
        self.server.proxy.closed(self.request)

    def do_GET(self):
        proxy = self.server.proxy
        address = urllib.parse.urlsplit(self.path)
        request = Request(self.command, urllib.parse.unquote(address.path).lstrip("/"),
                          address.query, self.headers.get("Range", ""),
                          self.headers.get("Authorization", ""))
        rule = proxy.began(request)
        try:
            self.answer(request, rule)
        except Cut:
            self.reset()
        except CUT:
            self.close_connection = True
        finally:
            proxy.ended(request)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815

    def answer(self, request, rule):
        fault = rule.fault if rule else ""
        body = self.read_body(request, rule.bytes if fault == "cut_upload" else None)
        if fault == "reset":
            raise Cut
        if fault == "slow":
            self.server.proxy.pause(rule.seconds)
        if fault in ANSWERS:
            if rule.call:
                rule.call()
            self.refuse(request, fault, *ANSWERS[fault])
        elif fault == "elsewhere":
            self.refuse(request, "PermanentRedirect", 301, "Send all requests to its endpoint.",
                        {"x-amz-bucket-region": ELSEWHERE})
        else:
            self.pass_on(request, body, rule)

    # --- the request

    def read_body(self, request, most):
        """The request's body; raises Cut when `most` bytes of it have come."""
        parts = []
        for part in self.body_parts():
            parts.append(part)
            request.received += len(part)
            if most is not None and request.received >= most:
                raise Cut
        if most is not None and parts:
            raise Cut
        return b"".join(parts)

    def body_parts(self):
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            while length := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(length)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return
        left = int(self.headers.get("Content-Length", 0))
        while left:
            part = self.rfile.read(min(PIECE, left))
            if not part:
                raise ConnectionError("the client went away")
            left -= len(part)
            yield part

    # --- the answer

    def refuse(self, request, code, status, message, headers=()):
        text = error_text(code, message, request.path)
        request.status = status
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if request.method != "HEAD":
            self.wfile.write(text)

    def pass_on(self, request, body, rule):
        reply = self.ask(body, ("range",) if rule and rule.fault == "whole" else ())
        request.status = reply.status
        length = reply.getheader("Content-Length")
        length = None if length is None else int(length)
        self.send_response_only(reply.status, reply.reason)
        for name, value in reply.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "keep-alive",
                                    "content-length"):
                if name.lower() == "etag" and rule and rule.fault == "opaque":
                    value = f'"{rule.content.decode()}{hashlib.md5(value.encode()).hexdigest()}"'
                self.send_header(name, value)
        if rule and rule.fault in ("call", "flip", "other", "again"):
            content = self.changed(request, rule, reply.read())
            self.send_header("Content-Length", str(length if request.method == "HEAD"
                                                   else len(content)))
            self.end_headers()
            self.send(request, content)
            return
        if request.method == "HEAD" or length == 0 or reply.status in (204, 304):
            if length is not None and reply.status != 204:
                self.send_header("Content-Length", str(length))
            self.end_headers()
            reply.read()
            return
        if length is None:  # read as a whole, for the client is to be told a length
            content = reply.read()
            pieces, length = iter([content]), len(content)
        else:
            pieces = iter(lambda: reply.read(PIECE), b"")
        self.send_body(request, rule, pieces, length)
        reply.read()

    def changed(self, request, rule, content):
        """The body that the client gets in place of the body of a sound answer."""
        if rule.fault == "call":
            rule.call()
        elif rule.fault == "flip" and content:
            content = bytearray(content)
            content[7919 * rule.done % len(content)] ^= 4
        elif rule.fault == "other":
            begin = int(re.match(r"bytes=(\d+)-", request.range)[1]) if request.range else 0
            content = rule.content[begin:begin + len(content)]
        elif rule.fault == "again":
            content = rule.content = rule.content or content
        return bytes(content)

    def ask(self, body, without=()):
        """The server's answer. The request keeps its headers, for they are signed."""
        for again in (True, False):
            if self.behind is None:
                self.behind = http.client.HTTPConnection(*self.server.proxy.server, timeout=120)
            try:
                self.behind.putrequest(self.command, self.path, skip_host=True,
                                       skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in ("connection", "expect", "transfer-encoding",
                                            "content-length", *without):
                        self.behind.putheader(name, value)
                if body or self.command in ("PUT", "POST"):
                    self.behind.putheader("Content-Length", str(len(body)))
                self.behind.endheaders(body or None)
                return self.behind.getresponse()
            except CUT:
                # The server may have closed a connection that it kept.
                self.behind.close()
                self.behind = None
                if not again:
                    raise
        raise AssertionError

    def send_body(self, request, rule, pieces, length):
        fault = rule.fault if rule else ""
        wrong = {"longer": rule.bytes, "shorter": -min(rule.bytes, length // 2)} if rule else {}
        told = length + wrong.get(fault, 0)
        self.send_header("Content-Length", str(told))
        if fault in ("shorter", "longer"):
            self.send_header("Connection", "close")  # and the connection is closed
        self.end_headers()
        half = length // 2
        for piece in pieces:
            if fault == "shorter":
                piece = piece[:max(0, told - request.sent)]
            elif (fault in ("reset_in_body", "truncated", "stall")
                    and request.sent + len(piece) > half):
                self.send(request, piece[:max(0, half - request.sent)])
                self.wfile.flush()
                if fault == "stall":
                    self.server.proxy.pause(rule.seconds)
                if fault == "reset_in_body":
                    raise Cut
                self.close_connection = True
                return
            self.send(request, piece)

    def send(self, request, piece):
        self.wfile.write(piece)
        request.sent += len(piece)

    def reset(self):
        """Closes the connection so that the client gets a reset instead of an end of file."""
        self.close_connection = True
        with contextlib.suppress(OSError, ValueError):
            self.wfile.flush()
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                       struct.pack("ii", 1, 0))
            self.connection.close()


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, proxy, tls):
        self.proxy, self.tls = proxy, tls
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, *_):
        """A client that goes away, or refuses our certificate, is no error of the proxy."""

    def shutdown_request(self, request):
        with contextlib.suppress(OSError):
            super().shutdown_request(request)


class FaultProxy:
    """A context manager. `rules` may be changed at any time; the first one that matches acts."""

    def __init__(self, endpoint, rules=(), seed=1, tls=None):
        address = urllib.parse.urlsplit(endpoint)
        self.server = (address.hostname, address.port)
        self.rules = list(rules)
        self.requests = []
        self.connections = 0
        self.in_flight = {"GET": 0, "PUT": 0}
        self.most_in_flight = {"GET": 0, "PUT": 0}
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._open = set()
        self._stopped = threading.Event()
        self._listener = Listener(self, tls)
        scheme = "https" if tls else "http"
        self.endpoint = f"{scheme}://127.0.0.1:{self._listener.server_address[1]}"

    def __enter__(self):
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.02,),
                                        daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        self._listener.shutdown()
        self._listener.server_close()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def pause(self, seconds):
        self._stopped.wait(seconds)

    def opened(self, connection):
        with self._lock:
            self.connections += 1
            self._open.add(connection)

    def closed(self, connection):
        with self._lock:
            self._open.discard(connection)

    def began(self, request):
        """Counts the request; returns the rule that acts on it."""
        with self._lock:
            self.requests.append(request)
            if request.method in self.in_flight:
                self.in_flight[request.method] += 1
                self.most_in_flight[request.method] = max(
                    self.in_flight[request.method], self.most_in_flight[request.method])
            rule = next((r for r in self.rules if r.takes(request, self._chance)), None)
            request.fault = rule.fault if rule else ""
            return rule

    def ended(self, request):
        with self._lock:
            if request.method in self.in_flight:
                self.in_flight[request.method] -= 1

    def faults(self):
        """How many requests each fault met."""
        counts = {}
        for request in list(self.requests):
            if request.fault:
                counts[request.fault] = counts.get(request.fault, 0) + 1
        return counts

    def count(self, *methods, keys=""):
        return sum(r.method in methods and re.search(keys, r.path) is not None
                   for r in list(self.requests))

    def bytes_sent(self, keys=""):
        return sum(r.sent for r in list(self.requests) if re.search(keys, r.path))


class Stalled:
    """A port that takes connections, counts them and says nothing."""

    def __init__(self):
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(64)
        self._kept = []
        self.endpoint = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    @property
    def connections(self):
        return len(self._kept)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                self._kept.append(self._socket.accept()[0])

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        time.sleep(0.1)  # for connections that wait to be taken
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in self._kept:
            connection.close()


def make_authority(folder):
    """Makes a certificate authority and a certificate of 127.0.0.1 that it signed. Returns the
    authority's file, and what a FaultProxy takes as tls."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.timezone.utc)

    def name(text):
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    def begin(subject, key):
        return (x509.CertificateBuilder().subject_name(name(subject))
                .issuer_name(name("authority of a test")).public_key(key.public_key())
                .serial_number(x509.random_serial_number())
                .not_valid_before(now - datetime.timedelta(days=1))
                .not_valid_after(now + datetime.timedelta(days=1)))

    authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    of_authority = begin("authority of a test", authority).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True).add_extension(
        x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True,
                      content_commitment=False, key_encipherment=False, data_encipherment=False,
                      key_agreement=False, encipher_only=False, decipher_only=False),
        critical=True).sign(authority, hashes.SHA256())
    of_server = begin("127.0.0.1", own).add_extension(
        x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                                     x509.DNSName("localhost")]),
        critical=False).sign(authority, hashes.SHA256())
    pem = serialization.Encoding.PEM
    certificates, chain = folder / "authority.pem", folder / "server.pem"
    certificates.write_bytes(of_authority.public_bytes(pem))
    chain.write_bytes(of_server.public_bytes(pem) + own.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(chain)
    return certificates, tls
