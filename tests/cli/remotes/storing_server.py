"""A web server that stores uploads (PUT) in memory, for the tests of remotes. Prints its port; runs until it is killed.

A number after the mode is the port.

storing_server.py conditions   honours If-None-Match and If-Match of a PUT, one request at a time, as S3 does
storing_server.py bazel        as strict as bazel-remote: only cas/<digest>, whose bytes have that digest, and ac/<64 digits>,
                               whose bytes are an ActionResult; a namespace before them is ignored; it adds who wrote it
storing_server.py pages        as conditions, but with error pages: 100 kB for missing objects, and 5 kB with status 503 for the
                               first request of an object
storing_server.py late         its clock is 20 minutes slow, and it refuses all requests, as S3 does then
"""

import email.utils
import hashlib
import http.server
import re
import socketserver
import sys
import threading
import time

NAME = re.compile(r"/(?:.*/)?(ac|cas)/([a-f0-9]{64})")
# The fields of an ActionResult and how each is encoded (remote_execution.proto of bazelbuild/remote-apis).
LENGTH_FIELDS, NUMBER_FIELDS = {2, 3, 5, 6, 7, 8, 9, 10, 11, 12}, {4}


def varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def is_action_result(body: bytes) -> bool:
    at = 0
    try:
        while at < len(body):
            tag, at = varint(body, at)
            field, kind = tag >> 3, tag & 7
            value, at = varint(body, at)
            if kind == 2 and field in LENGTH_FIELDS:
                at += value
            elif not (kind == 0 and field in NUMBER_FIELDS):
                return False
    except IndexError:
        return False
    return at == len(body)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *arguments: object) -> None:
        pass

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(time.time() - 1200 if mode == "late" and timestamp is None else timestamp)

    def answer(self, code: int, body: bytes = b"", modified: float | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        if modified is not None:
            self.send_header("ETag", '"%s"' % hashlib.sha256(body + str(modified).encode()).hexdigest())
            self.send_header("Last-Modified", email.utils.formatdate(modified, usegmt=True))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        name = self.name()
        if mode == "late":
            self.answer(403)
        elif name is None:
            self.answer(400)
        elif mode == "pages" and self.command == "GET" and name in files and name not in asked:
            asked.add(name)
            self.answer(503, b"<p>busy</p>" * 450)
        elif name in files:
            self.answer(200, *files[name])
        else:
            self.answer(404, b"<p>nothing</p>" * 7000 if mode == "pages" else b"")

    do_HEAD = do_GET

    def name(self) -> str | None:
        if mode != "bazel":
            return self.path
        found = NAME.fullmatch(self.path)
        return f"{found[1]}/{found[2]}" if found else None

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        name = self.name()
        if mode == "bazel":
            if name is None:
                self.answer(400, b"not a name")
                return
            if name.startswith("cas/") and hashlib.sha256(body).hexdigest() != name[4:]:
                self.answer(400, b"another digest")
                return
            if name.startswith("ac/"):
                if not body or not is_action_result(body):
                    self.answer(400, b"not an ActionResult")
                    return
                body += b"\x4a\x0b\x0a\x09127.0.0.1"  # execution_metadata.worker
        with lock:
            if mode in ("conditions", "pages") and not self.condition_holds(name):
                self.answer(412)
                return
            files[name] = (body, time.time())
        self.answer(201)

    def condition_holds(self, name: str | None) -> bool:
        if self.headers.get("If-None-Match") == "*" and name in files:
            return False
        wanted = self.headers.get("If-Match")
        if wanted is None:
            return True
        if name not in files:
            return False
        body, modified = files[name]
        return wanted == '"%s"' % hashlib.sha256(body + str(modified).encode()).hexdigest()


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *arguments: object) -> None:
        pass


mode = sys.argv[1]
files: dict[str | None, tuple[bytes, float]] = {}
asked: set[str | None] = set()
lock = threading.Lock()
server = Server(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
