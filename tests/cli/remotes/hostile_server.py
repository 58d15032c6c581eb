"""A hostile web server: serves the given directory, and falsifies its answers as the file `mood` says.

Prints its port. PUT and GET are correct while the mood is empty. Runs until it is killed.
"""

import http.server
import os
import socketserver
import sys
import time

root, mood_file = sys.argv[1], sys.argv[2]


def mood() -> str:
    try:
        with open(mood_file) as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        pass

    def path_of(self) -> str:
        return os.path.join(root, self.path.lstrip("/"))

    def answer(self, code: int, body: bytes = b"", length: int | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.answer(200 if os.path.exists(self.path_of()) else 404)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        os.makedirs(os.path.dirname(self.path_of()), exist_ok=True)
        with open(self.path_of(), "wb") as file:
            file.write(body)
        self.answer(201)

    def do_GET(self) -> None:
        if not os.path.exists(self.path_of()):
            self.answer(404)
            return
        with open(self.path_of(), "rb") as file:
            body = file.read()
        kind, _, where = mood().partition(" ")
        if not kind or not self.path.lstrip("/").startswith(where or "cas/"):
            self.answer(200, body)
            return
        getattr(self, "be_" + kind)(body)

    def be_flipped(self, body: bytes) -> None:
        self.answer(200, body[:-6] + bytes([body[-6] ^ 1]) + body[-5:])

    def be_cut(self, body: bytes) -> None:
        self.answer(200, body[: len(body) // 2], len(body))
        self.close_connection = True

    def be_short(self, body: bytes) -> None:
        self.answer(200, body[: len(body) // 2])

    def be_long(self, body: bytes) -> None:
        self.answer(200, body + b"more")

    def be_empty(self, body: bytes) -> None:
        self.answer(200)

    def be_slow(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for byte in body:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(0.2)

    def be_late(self, body: bytes) -> None:
        time.sleep(0.8)
        self.answer(200, body)

    def be_endless(self, body: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        while True:
            self.wfile.write(b"\0" * 65536)

    def be_bomb(self, body: bytes) -> None:
        with open(os.path.join(root, "bomb"), "rb") as file:
            self.answer(200, file.read())

    def be_other(self, body: bytes) -> None:
        with open(os.path.join(root, "other"), "rb") as file:
            self.answer(200, file.read())

    def be_broken(self, body: bytes) -> None:
        self.answer(500, b"sorry")

    def be_elsewhere(self, body: bytes) -> None:
        self.send_response(302)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Length", "0")
        self.end_headers()


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def handle_error(self, *arguments: object) -> None:
        pass


server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
