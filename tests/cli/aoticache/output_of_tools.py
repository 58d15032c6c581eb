"""Runs tools with a standard output that is not a file: output_of_tools.py broken|full|terminal|watch ...

broken COMMAND...            A pipe without a reader: prints "SIGPIPE" or the exit status, and standard error.
full COMMAND...              /dev/full: likewise.
terminal COLUMNS COMMAND...  A terminal of this width: prints what was shown, without the terminal's sequences.
watch LINES COLUMNS KEYS COMMAND...  A terminal of that size, on which KEYS are pressed after a second: prints the lines of the
                             last page, then "height H width W", "status S", and whether the terminal echoes again.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time


def run_into(descriptor: int, command: list[str]) -> None:
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=descriptor, stderr=subprocess.PIPE)
    print("SIGPIPE" if ended.returncode == -signal.SIGPIPE else ended.returncode)
    print(ended.stderr.decode(), end="")


def start(lines: int, columns: int, command: list[str]) -> tuple[int, int]:
    begin, go = os.pipe()
    process, terminal = pty.fork()
    if process == 0:
        os.read(begin, 1)  # the size is set
        os.environ.update(TERM="xterm", NO_COLOR="1")
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    os.write(go, b"x")
    return process, terminal


def read_for(terminal: int, seconds: float) -> bytes:
    seen, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                part = os.read(terminal, 65536)
            except OSError:
                break
            if not part:
                break
            seen += part
    return seen


def plain(text: bytes) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode().replace("\r\n", "\n"))


def terminal(columns: str, *command: str) -> None:
    process, descriptor = start(24, int(columns), list(command))
    print(plain(read_for(descriptor, 20)), end="")
    os.waitpid(process, 0)


def watch(lines: str, columns: str, keys: str, *command: str) -> None:
    process, descriptor = start(int(lines), int(columns), list(command))
    shown = read_for(descriptor, 2.5)
    page = plain(shown.split(b"\x1b[H")[-2])  # the last may be incomplete
    print(page)
    print(f"height {page.count(chr(10)) + 1} width {max(map(len, page.split(chr(10))))}")
    os.write(descriptor, keys.encode())
    ended = status = 0
    for _ in range(20):  # it may wait until its output is read
        read_for(descriptor, 0.1)
        time.sleep(0.1)
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            break
    print("status", status if ended else "none: it goes on")
    if ended:
        print("echo", bool(termios.tcgetattr(descriptor)[3] & termios.ECHO))
    else:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


if sys.argv[1] == "broken":
    reader, writer = os.pipe()
    os.close(reader)
    run_into(writer, sys.argv[2:])
elif sys.argv[1] == "full":
    run_into(os.open("/dev/full", os.O_WRONLY), sys.argv[2:])
else:
    {"terminal": terminal, "watch": watch}[sys.argv[1]](*sys.argv[2:])
