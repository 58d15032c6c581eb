"""pytest for tests/python. scripts/run-tests counts one line for each case, as of the other tests: ok, not ok, skip."""

import pytest

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
    """Prints a line when a case has ended; what failed, and what it printed, comes from pytest at the end."""

    def __init__(self, reporter):
        self.reporter = reporter

    def say(self, line):
        self.reporter.ensure_newline()
        self.reporter.write_line(line)

    def pytest_runtest_logreport(self, report):
        if report.skipped and report.when in ("setup", "call"):
            reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.say(f"skip - {name_of(report.nodeid)}: {' '.join(reason.split())}")
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
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not session.config.option.markexpr:
        session.exitstatus = 1
