"""pytest setup for tests/python. scripts/run-tests counts one line per case, as for the other tests: ok, not ok,
skip."""
import os

import pytest

import search_path  # noqa: F401

try:
    import torch  # noqa: F401
except ImportError:
    print("skip - this Python has no PyTorch")
    pytest.exit("no PyTorch", 77)


def pytest_configure(config):
    config.addinivalue_line("markers", "quick: a case that `make test` runs; `make test-all` runs all")


def name_of(nodeid):
    return nodeid.partition("::")[2].replace("::", ".").removeprefix("test_").replace("\n", " ")


class Lines:
    """Prints a line when a case ends. pytest prints failures and captured output at the end."""

    def __init__(self, reporter):
        self.reporter = reporter

    def say(self, line):
        self.reporter.ensure_newline()
        self.reporter.write_line(line)

    def pytest_collectreport(self, report):  # reports on a whole file
        if report.skipped:
            self.skip(report, os.path.basename(report.nodeid))

    def skip(self, report, name):
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)
        self.say(f"skip - {name}: {' '.join(reason.split())}")

    def pytest_runtest_logreport(self, report):
        if report.skipped and report.when in ("setup", "call"):
            self.skip(report, name_of(report.nodeid))
        elif report.failed:
            message = getattr(getattr(report.longrepr, "reprcrash", None), "message", str(report.longrepr))
            where = "" if report.when == "call" else f" ({report.when})"
            self.say(f"not ok - {name_of(report.nodeid)}{where}: {' '.join(message.split())[:600]}")
        elif report.when == "call":
            self.say(f"ok - {name_of(report.nodeid)}")

    def pytest_report_teststatus(self, report):
        return report.outcome if report.when == "call" or not report.passed else "", "", ""  # no dots


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session):
    config = session.config
    config.pluginmanager.register(Lines(config.pluginmanager.getplugin("terminalreporter")))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session, exitstatus):
    """Handles a run without any case: the whole file was skipped, or the selected case does not exist."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = 77 if session.config.pluginmanager.getplugin("terminalreporter").stats.get("skipped") else 1
