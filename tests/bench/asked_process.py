"""A process that is asked, by a benchmark whose processes take turns: it says a line of JSON when it is ready, and then one for
each line of its standard input.
"""
import json
import subprocess


class Ended(Exception):
    """With the last line of its standard error, where that was kept."""


class AskedProcess:
    """keywords: of subprocess.Popen, such as env."""

    def __init__(self, command, **keywords):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **keywords)
        try:
            #: What it said when it was ready.
            self.first = self._read()
        except Ended:
            self.close()
            raise

    def ask(self, line):
        print(line, file=self.process.stdin, flush=True)
        return self._read()

    def close(self):
        """It ends, as there are no more questions."""
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
    """Of the process itself."""
    print(json.dumps(what), flush=True)
