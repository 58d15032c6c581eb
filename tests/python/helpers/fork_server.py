"""A process that has imported PyTorch and its compiler. It forks processes that start with both imported.

Importing them takes three seconds of processor time, and the tests start some hundreds of processes. A forked process starts
with its own environment, directory, arguments and files. It has compiled nothing and started no thread.

usage: fork_server.py SOCKET           serves on that Unix socket until its standard input is closed
       python -S -E fork_server.py --run SOCKET ARGUMENT...   does what `python ARGUMENT...` does, as a fork

PyTorch reads many variables when it is imported. If one that it may read differs from the server's, --run starts Python itself.
"""
import array
import json
import os
import re
import signal
import socket
import sys
import time
import warnings

#: Variables that nothing reads when PyTorch is imported, or that a forked process applies itself. If another variable
#: differs from the server's, --run starts Python.
WHEN_USED = re.compile(r"AOTICACHE_(?!ENABLE|COMPILE|INSTALL).*|PATH|HOME|PWD|OLDPWD|SHLVL|_|PYTHON(PATH|DONTWRITEBYTECODE|WARNINGS)|PYTEST_.*|"
                       r"TORCHINDUCTOR_CACHE_DIR|TRITON_CACHE_(DIR|MANAGER)|TEST_.*|BUILD|VENV|SEEDS?|COUNT|PART|QUICK|CACHE|CASES|JOBS")
#: PyTorch's configuration has read these too: a forked process sets the options that they control.
SETTINGS = {"TORCHINDUCTOR_VEC_ISA_OK": ("cpp.vec_isa_ok", {"1": True, "0": False}, None),
            "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": ("cpp_cache_precompile_headers", {"1": True, "0": False}, True),
            "TORCHINDUCTOR_COMPILE_THREADS": ("compile_threads", {"1": 1}, None)}
MODULES = ("torch", "torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codecache", "torch._inductor.graph",
           "torch._inductor.codegen.cpp", "torch._inductor.codegen.cpp_wrapper_cpu", "torch._inductor.package", "torch.export")


def at_import(environment):
    return {name: value for name, value in environment.items() if not WHEN_USED.fullmatch(name) and name not in SETTINGS}


def apply_settings(before, environment):
    from torch._inductor import config
    for name, (option, values, default) in SETTINGS.items():
        if before.get(name) != environment.get(name):
            setattr(config, option, values.get(environment.get(name), default))


# ---- the server ----

def become(request, files):
    """Turns the forked process into what Python would be with these arguments."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, 1 << 16)
    os.chdir(request["directory"])
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(request["environment"])
    apply_settings(before, os.environ)
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        setattr(sys, name, open(number, "r" if number == 0 else "w", buffering=1 if number else -1, closefd=False,
                                errors="backslashreplace" if number == 2 else None))
    first, *others = request["arguments"]
    options = [one for one in os.environ.get("PYTHONWARNINGS", "").split(",") if one]
    while first == "-W":
        options.append(others[0])
        first, *others = others[1:]
    for option in options:
        sys.warnoptions.append(option)
        warnings._setoption(option)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:1] = [*paths]
    sys.orig_argv = [sys.executable, first, *others]
    import random
    import runpy
    random.seed()
    if first == "-m":
        sys.argv = others
        sys.path.insert(0, os.getcwd())
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif first in ("-c", "-"):
        text = others[0] if first == "-c" else sys.stdin.read()
        sys.argv = [first, *others[1:]] if first == "-c" else [first, *others]
        sys.path.insert(0, "")
        main = type(sys)("__main__")
        sys.modules["__main__"] = main
        main.__dict__["__builtins__"] = __builtins__
        exec(compile(text, "<string>" if first == "-c" else "<stdin>", "exec"), main.__dict__)
    else:
        sys.argv = [first, *others]
        sys.path.insert(0, os.path.dirname(os.path.abspath(first)))
        main = type(sys)("__main__")  # runpy would remove its classes at the end, while threads still run
        main.__file__ = first
        main.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = main
        with open(first, "rb") as file:
            exec(compile(file.read(), first, "exec"), main.__dict__)


def fork(listener, connections, connection, request, files):
    """Forks. Returns the process id of the new process."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        os.setpgid(0, 0)
        listener.detach(), [one.detach() for one in connections]
        become(request, files)
    except SystemExit:
        raise
    except BaseException:
        import traceback
        kind, error, trace = sys.exc_info()
        while trace and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        traceback.print_exception(kind, error, trace)
        sys.exit(1)
    sys.exit(0)


def receive(connection):
    """Receives a request. Returns it and its three files, or None if the client has disconnected."""
    files = array.array("i")
    data, others, _, _ = connection.recvmsg(1 << 16, socket.CMSG_SPACE(3 * files.itemsize))
    if not data:
        return None
    for _, _, content in others:
        files.frombytes(content[:len(content) - len(content) % files.itemsize])
    length, _, text = data.partition(b"\n")
    while len(text) < int(length):
        text += connection.recv(1 << 16)
    return json.loads(text), list(files)


def serve(path):
    import importlib
    import selectors
    for name in MODULES:
        importlib.import_module(name)
    import gc
    gc.collect()
    gc.freeze()  # if a forked process collects garbage, it does not copy all of this
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path + ".new")
    listener.listen(64)
    os.rename(path + ".new", path)
    known, children = at_import(os.environ), {}
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write)
    selector = selectors.DefaultSelector()
    for source in (0, listener, wake_read):
        selector.register(source, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            source = key.fileobj
            if source == 0:
                if not os.read(0, 4096):
                    os.unlink(path)
                    return
            elif source is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
            elif source == wake_read:
                os.read(wake_read, 4096)
                while children:
                    pid, status, used = os.wait4(-1, os.WNOHANG)
                    if not pid:
                        break
                    connection = children.pop(pid)
                    try:
                        connection.sendall(b"%d %.2f %.2f\n" % (status, used.ru_utime, used.ru_stime))
                    except OSError:
                        pass
            else:
                try:
                    asked = receive(source)
                except OSError:
                    asked = None
                if asked is None:  # the client has disconnected: after its process ended, or earlier if it was killed
                    for pid, connection in children.items():
                        if connection is source:
                            os.killpg(pid, signal.SIGKILL)
                    selector.unregister(source)
                    source.close()
                    continue
                request, files = asked
                if at_import(request["environment"]) != known:
                    source.sendall(b"start\n")
                else:
                    connections = [one.fileobj for one in selector.get_map().values() if isinstance(one.fileobj, socket.socket)]
                    pid = fork(listener, connections, source, request, files)
                    children[pid] = source
                    source.sendall(b"pid %d\n" % pid)
                for file in files:
                    os.close(file)


# ---- a process that is a fork ----

def run(path, arguments):
    connection = socket.socket(socket.AF_UNIX)
    start = [sys.executable, *arguments]
    options = arguments
    while options[0] == "-W" and options[1] in ("ignore", "error", "always"):
        options = options[2:]
    if options[0].startswith("-") and options[0] not in ("-c", "-m", "-"):
        os.execv(sys.executable, start)
    for _ in range(600):  # the server is still importing
        if os.path.exists(path) or not os.path.exists(os.path.dirname(path)):
            break
        time.sleep(0.1)
    try:
        connection.connect(path)
    except OSError:
        os.execv(sys.executable, start)
    text = json.dumps({"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}).encode()
    connection.sendmsg([b"%d\n" % len(text)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    connection.sendall(text)
    answers = connection.makefile("r")
    answer = answers.readline().split()
    if answer == ["start"] or not answer:
        os.execv(sys.executable, start)
    pid = int(answer[1])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    status = answers.readline()
    if not status:
        sys.exit("the fork server has gone")
    status, *used = status.split()
    status = int(status)
    if "TEST_TIMES" in os.environ:  # set by scripts/run-tests, which adds them to this process's times
        with open(os.environ["TEST_TIMES"], "a") as file:
            file.write(" ".join(used) + "\n")
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        run(sys.argv[2], sys.argv[3:])
    else:
        serve(sys.argv[1])
