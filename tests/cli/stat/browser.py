"""A browser without a window, by the DevTools protocol over a pair of pipes. Needs only Chromium.

    with Browser(program, directory) as browser:
        page = browser.open("file:///...", width=390, scheme="dark")
        page.evaluate("document.title"), page.screenshot("dark.png"), page.complaints, page.requests
"""
import base64
import json
import os
import select
import subprocess
import time


class Browser:
    def __init__(self, program, directory, seconds=60):
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self.seconds, self.number, self.answers, self.buffer, self.pages = seconds, 0, {}, b"", {}

        def take_pipes():  # the browser reads descriptor 3 and writes 4
            low, high = os.dup2(theirs_in, 30), os.dup2(theirs_out, 31)
            os.dup2(low, 3)
            os.dup2(high, 4)
        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--remote-debugging-pipe", "--user-data-dir=" + directory, "about:blank"],
            env={**os.environ, "HOME": directory, "XDG_CONFIG_HOME": directory, "XDG_CACHE_HOME": directory},
            preexec_fn=take_pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.ours_in, self.ours_out = ours_in, ours_out

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.ours_out)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.ours_in)

    def call(self, method, session=None, **parameters):
        """Sends a command and returns its result; events that arrive meanwhile go to the pages."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.ours_out, json.dumps(message).encode() + b"\0")
        number = self.number
        self.wait_for(lambda: number in self.answers, method)
        answer = self.answers.pop(number)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def wait_for(self, condition, what):
        deadline = time.monotonic() + self.seconds
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.ours_in], [], [], left)[0], f"the browser took too long: {what}"
            got = os.read(self.ours_in, 1 << 20)
            assert got, f"the browser has ended: {what}"
            *messages, self.buffer = (self.buffer + got).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self.answers[message["id"]] = message
                elif message.get("sessionId") in self.pages:
                    self.pages[message["sessionId"]].note(message["method"], message["params"])

    def open(self, url, **how):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, session, url, target=target, **how)


class Page:
    """A loaded page: `complaints` are its errors and console messages, `requests` its requests."""

    def __init__(self, browser, session, url, width=1000, height=800, scheme="light", scripts=True, target=None):
        self.browser, self.session, self.target, self.is_loaded, self.complaints, self.requests = browser, session, target, False, [], []
        browser.pages[session] = self
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Page.navigate", url=url)
        browser.wait_for(lambda: self.is_loaded, url)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def note(self, event, parameters):
        if event == "Page.loadEventFired":
            self.is_loaded = True
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(parameters["exceptionDetails"])
        elif event == "Runtime.consoleAPICalled":
            self.complaints.append([argument.get("value") for argument in parameters["args"]])
        elif event == "Log.entryAdded":
            self.complaints.append(parameters["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def evaluate(self, expression):
        """Returns the value of an expression, once two frames have been drawn."""
        text = f"new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done({expression}))))"
        answer = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def close(self):
        """Closes it: many open pages take much memory."""
        self.browser.pages.pop(self.session)
        self.browser.call("Target.closeTarget", targetId=self.target)

    def screenshot(self, path, whole=False):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
