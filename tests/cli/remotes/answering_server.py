"""Servers that store uploads in memory, and answer some requests as a file of rules says, for the tests of what an answer
means. Print the port; run until they are killed.

    answering_server.py http RULES LOG    honours If-None-Match and If-Match. A rule is: METHOD PREFIX STATUS [HEADER: VALUE]...
                                          METHOD: GET, HEAD, PUT, PUT? (only with a condition), DELETE, or * for all.
                                          STATUS: a number, or `deaf` (no answer). PREFIX: of the path, without the first "/".
                                          A line `directories`: PUT into a missing directory gets status 409, MKCOL makes one.
                                          A line `plain`: conditions are ignored. A line `undated`: no Last-Modified.
                                          A line `reset NUMBER`, if it is new: keeps only what existed at the first one.
    answering_server.py redis RULES LOG   GET, SET, EXISTS, DEL and the scripts of the module. A rule is: COMMAND PREFIX TEXT...
                                          with TEXT as the error. COMMAND: GET, SET, EVAL, ..., or * for all.

Each request is a line of LOG: the request, and the status.
"""
import email.utils
import hashlib
import http.server
import socketserver
import sys
import threading
import time

kind, rules_file, log_file = sys.argv[1:4]
lock = threading.Lock()
files = {}
directories = {""}


reset = {"number": "", "files": None}


def rules():
    with open(rules_file) as file:
        lines = [line.split() for line in file if line.strip()]
    with lock:
        for one in (line[1] for line in lines if line[0] == "reset" and line[1] != reset["number"]):
            reset["number"] = one
            if reset["files"] is None:
                reset["files"] = dict(files)
            files.clear()
            files.update(reset["files"])
    return [line for line in lines if line[0] != "reset"]


def log(*words):
    with lock, open(log_file, "a") as file:
        print(*words, file=file, flush=True)


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, code, body=b"", **headers):
        log(self.command, self.path, code)
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def rule(self, asked):
        path = self.path.lstrip("/")
        has_condition = "If-None-Match" in self.headers or "If-Match" in self.headers
        for method, prefix, *rest in (one for one in asked if len(one) > 2):
            fits = method in ("*", self.command) or (method == "PUT?" and self.command == "PUT" and has_condition)
            if fits and path.startswith(prefix.lstrip("/")):
                return rest
        return None

    def do_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = rules()
        rule = self.rule(asked)
        if rule and rule[0] == "deaf":
            log(self.command, self.path, "deaf")
            time.sleep(60)
            return None
        if rule:
            headers = {rest.rstrip(":"): value for rest, value in zip(rule[1::2], rule[2::2])}
            return self.answer(int(rule[0]), b"<Error><Code>AccessDenied</Code></Error>", **headers)
        flags = {one[0] for one in asked if len(one) == 1}
        if self.command == "PUT":
            return self.put(body, flags)
        if self.command == "MKCOL":
            with lock:
                parent, _, _ = self.path.rstrip("/").rpartition("/")
                is_there = self.path.rstrip("/") in directories
                if "directories" in flags and not is_there and parent in directories:
                    directories.add(self.path.rstrip("/"))
            return self.answer(405 if "directories" not in flags or is_there else 201 if parent in directories else 409)
        with lock:
            kept = files.pop(self.path, None) if self.command == "DELETE" else files.get(self.path)
        if kept is None:
            return self.answer(404)
        if self.command == "DELETE":
            return self.answer(204)
        dated = {} if "undated" in flags else {"Last_Modified": email.utils.formatdate(kept[2], usegmt=True)}
        return self.answer(200, kept[0], ETag=kept[1], **dated)

    def put(self, body, flags):
        none, match = self.headers.get("If-None-Match"), self.headers.get("If-Match")
        with lock:
            kept = files.get(self.path)
            code = 201
            if "directories" in flags and self.path.rpartition("/")[0] not in directories:
                code = 409
            elif "plain" not in flags and ((none == "*" and kept) or (match and (not kept or kept[1] != match))):
                code = 412
            else:
                tag = hashlib.md5(body + str(time.time_ns()).encode()).hexdigest()
                files[self.path] = body, f'"{tag}"', time.time()
        return self.answer(code)

    do_GET = do_HEAD = do_PUT = do_DELETE = do_MKCOL = do_any


class Redis(socketserver.StreamRequestHandler):
    def words(self):
        line = self.rfile.readline()
        if not line.startswith(b"*"):
            return None
        words = []
        for _ in range(int(line[1:])):
            size = int(self.rfile.readline()[1:])
            words.append(self.rfile.read(size))
            self.rfile.read(2)
        return words

    def handle(self):
        while words := self.words():
            command = words[0].decode().upper()
            key = words[3 if command == "EVAL" else 1].decode() if len(words) > 1 else ""
            error = next((" ".join(rest) for one, prefix, *rest in rules() if one in (command, "*") and key.startswith(prefix)), "")
            log(command, key, error or "ok")
            with lock:
                answer = b"-%s\r\n" % error.encode() if error else self.answer(command, key, words)
            self.wfile.write(answer)

    def answer(self, command, key, words):
        value = files.get(key)
        if command == "GET":
            return b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)
        if command in ("EXISTS", "DEL"):
            if command == "DEL":
                files.pop(key, None)
            return b":%d\r\n" % (value is not None)
        if command == "SET":
            if len(words) > 3 and value is not None:
                return b"$-1\r\n"
            files[key] = words[2]
            return b"+OK\r\n"
        if command == "TIME":
            return b"*2\r\n$10\r\n%010d\r\n$1\r\n0\r\n" % time.time()
        if command == "EVAL":  # acquire, release, or a put with a version
            script, first, second = words[1], words[4], words[5]
            if b"PX" in script:
                if value not in (None, first):
                    return b":0\r\n"
                files[key] = first
            elif b"DEL" in script:
                files.pop(key, None)
            elif value is None or hashlib.sha1(value).hexdigest().encode() != second:
                return b":0\r\n"
            else:
                files[key] = first
            return b":1\r\n"
        return b"-ERR unknown command\r\n"


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer if kind == "http" else socketserver.TCPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass


server = Server(("127.0.0.1", 0), Web if kind == "http" else Redis)
print(server.server_address[1], flush=True)
server.serve_forever()
