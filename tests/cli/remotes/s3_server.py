"""A server with S3's interface that verifies signatures, as Amazon documents them (AWS Signature Version 4, in the header
Authorization). It keeps objects in memory, honours If-None-Match and If-Match of a PUT, and prints on standard error which
requests it refuses and why.

    s3_server.py KEY SECRET REGION [PORT [DIRECTORY]]      prints its port

With a directory it also keeps the objects in files there, and reads them after a restart. Two more files there change its
answers from the next request on: `secret` replaces SECRET, and `refuses` has the status and the code of its answer to each PUT
("507 InsufficientStorage").

    s3_server.py --check                checks that botocore's signatures pass, and changed ones do not; 77 without botocore

Written from docs.aws.amazon.com: "Create a signed AWS API request", "Authenticating Requests: Using the Authorization Header".
"""
import datetime
import email.utils
import hashlib
import hmac
import http.server
import os
import pathlib
import re
import sys
import threading
import time
import urllib.parse

ALGORITHM = "AWS4-HMAC-SHA256"
NEEDED = ("host", "x-amz-content-sha256", "x-amz-date")


def sign(secret, date, region, scope, timestamp, canonical):
    key = ("AWS4" + secret).encode()
    for part in (date, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    text = "\n".join((ALGORITHM, timestamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def problem_of(method, target, headers, body, key, secret, region):
    """Returns why a request is refused, or "". headers: (name, value) in the order received."""
    given = {}
    for name, value in headers:
        given.setdefault(name.lower(), []).append(" ".join(value.split()))
    found = re.fullmatch(ALGORITHM + r" Credential=([^,]+), *SignedHeaders=([^,]+), *Signature=([0-9a-f]{64})",
                         given.get("authorization", [""])[0])
    if not found:
        return "MissingSecurityHeader: Authorization"
    credential, signed, signature = found[1].split("/"), found[2].split(";"), found[3]
    if credential[0] != key:
        return "InvalidAccessKeyId"
    if credential[2:] != [region, "s3", "aws4_request"]:
        return f"AuthorizationHeaderMalformed: {found[1]}"
    for name in NEEDED:
        if name not in given:
            return f"MissingSecurityHeader: {name}"
    for name in given:
        if (name.startswith("x-amz-") or name == "host") and name not in signed:
            return f"AccessDenied: {name} is not signed"
    for name in signed:
        if name not in given:
            return f"SignatureDoesNotMatch: {name} is signed and was not sent"
    if signed != sorted(signed):
        return "SignatureDoesNotMatch: the signed headers are not sorted"
    timestamp, payload = given["x-amz-date"][0], given["x-amz-content-sha256"][0]
    then = datetime.datetime.strptime(timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
    if abs((datetime.datetime.now(datetime.timezone.utc) - then).total_seconds()) > 900 or credential[1] != timestamp[:8]:
        return "RequestTimeTooSkewed"
    if payload != hashlib.sha256(body).hexdigest():
        return f"XAmzContentSHA256Mismatch: {payload}"
    path, _, query = target.partition("?")
    path = urllib.parse.quote(urllib.parse.unquote(path), safe="/~-._")
    pairs = sorted((urllib.parse.quote(name, safe="~-._"), urllib.parse.quote(value, safe="~-._"))
                   for name, value in urllib.parse.parse_qsl(query, keep_blank_values=True))
    canonical = "\n".join((method, path, "&".join(f"{name}={value}" for name, value in pairs),
                           *(f"{name}:{','.join(given[name])}" for name in signed), "", ";".join(signed), payload))
    if sign(secret, credential[1], region, "/".join(credential[1:]), timestamp, canonical) != signature:
        return "SignatureDoesNotMatch"
    return ""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    objects = {}
    lock = threading.Lock()
    directory = None

    def do_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        key, secret, region = sys.argv[1:4]
        problem = problem_of(self.command, self.path, self.headers.items(), body, key, self.told("secret") or secret, region)
        if problem:
            print(f"{self.command} {self.path}: {problem}", file=sys.stderr, flush=True)
            return self.answer(403, f"<Error><Code>{problem.partition(':')[0]}</Code></Error>".encode())
        refused = self.told("refuses")
        if refused and self.command == "PUT":
            return self.answer(int(refused.split()[0]), f"<Error><Code>{refused.split()[1]}</Code></Error>".encode())
        kept = self.objects.get(self.path)
        if self.command == "PUT":
            return self.answer(200 if self.put(body) else 412)
        if kept is None:
            return self.answer(404)
        return self.answer(200, kept[0], ETag=kept[1], **{"Last-Modified": kept[2]})

    def put(self, body):
        none, match = self.headers.get("If-None-Match"), self.headers.get("If-Match")
        with self.lock:  # S3 checks and writes in one step
            kept = self.objects.get(self.path)
            if (none == "*" and kept) or (match is not None and (kept is None or kept[1] != match)):
                return False
            self.keep(self.path, body, time.time())
            if self.directory:
                file = self.directory / "objects" / urllib.parse.quote(self.path, safe="")
                file.with_suffix(".new").write_bytes(body)
                os.replace(file.with_suffix(".new"), file)
            return True

    @classmethod
    def keep(cls, path, body, modified):
        cls.objects[path] = (body, f'"{hashlib.md5(body).hexdigest()}"', email.utils.formatdate(modified, usegmt=True))

    @classmethod
    def use_directory(cls, directory):
        cls.directory = directory
        (directory / "objects").mkdir(parents=True, exist_ok=True)
        for file in (directory / "objects").iterdir():
            if file.suffix != ".new":
                cls.keep(urllib.parse.unquote(file.name), file.read_bytes(), file.stat().st_mtime)

    def told(self, name):
        """Returns the contents of a file of the directory, or "" without one."""
        try:
            return (self.directory / name).read_text().strip() if self.directory else ""
        except FileNotFoundError:
            return ""

    do_GET = do_PUT = do_HEAD = do_any

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        if self.command != "HEAD":  # headers and body in one write
            self._headers_buffer.append(b"\r\n" + body)
            self.flush_headers()
        else:
            self.end_headers()

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, *_):  # the client has disconnected
        pass


def check():
    try:
        import botocore.auth
        import botocore.awsrequest
        import botocore.credentials
    except ImportError:
        print("there is no botocore")
        return 77
    credentials = botocore.credentials.Credentials("key", "secret")
    for method, path, body in (("GET", "/kernels/team/a", b""), ("PUT", "/kernels/team/b%20c", b"some bytes"),
                               ("HEAD", "/kernels/x", b""), ("GET", "/kernels?max-keys=1&prefix=a%2Fb", b"")):
        request = botocore.awsrequest.AWSRequest(method, "http://127.0.0.1:9" + path, data=body)
        botocore.auth.S3SigV4Auth(credentials, "s3", "eu-west-1").add_auth(request)
        headers = [("Host", "127.0.0.1:9"), *request.headers.items()]
        arguments = method, path, headers, body
        problem = problem_of(*arguments, "key", "secret", "eu-west-1")
        assert problem == "", (method, path, problem)
        assert problem_of(*arguments, "key", "other", "eu-west-1") == "SignatureDoesNotMatch"
        assert problem_of(*arguments[:3], body + b"x", "key", "secret", "eu-west-1").startswith("XAmzContentSHA256Mismatch")
        assert problem_of(method, path + "y", headers, body, "key", "secret", "eu-west-1") == "SignatureDoesNotMatch"
        less = [one for one in headers if one[0].lower() != "x-amz-content-sha256"]
        assert problem_of(method, path, less, body, "key", "secret", "eu-west-1").startswith("MissingSecurityHeader")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(check())
    if len(sys.argv) > 5:
        Handler.use_directory(pathlib.Path(sys.argv[5]))
    server = Server(("127.0.0.1", int(sys.argv[4]) if len(sys.argv) > 4 else 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
