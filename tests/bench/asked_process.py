"""A process that a benchmark queries, one of several that alternate: it prints a line of JSON when it is ready, and
then one for each line of its standard input.
"""
import json
import subprocess


class Ended(Exception):
    """The process ended; has the last line of its standard error, if that was kept."""


class AskedProcess:
    """Starts the process. keywords: of subprocess.Popen, such as env."""

    def __init__(self, command, **keywords):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **keywords)
        try:
            #: What it printed when it was ready.
            self.first = self._read()
        except Ended:
            self.close()
            raise

    def ask(self, line):
        print(line, file=self.process.stdin, flush=True)
        return self._read()

    def close(self):
        """Ends it by closing its input."""
        self.process.stdin.close()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def _read(self):
        line = self.process.stdout.readline()
        if not line:
            said = self.process.stderr.read().strip().rpartition("\n")[2] if self.process.stderr is not None else ""
            raise Ended(said or f"a process ended with {self.process.wait()}")
        return json.loads(line)


def answer(what):
    """Ends the process itself."""
    print(json.dumps(what), flush=True)
