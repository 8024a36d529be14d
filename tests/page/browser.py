"""A page of `tandem trace` in headless Chromium, driven as a user does: by wheel, pointer and keys."""

import contextlib
import io
import json
import pathlib
import shutil
import time

import PIL.Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "src/trace/page/timeline.html"
MARKER = "/*TANDEM_TRACE_JSON*/null"
DEADLINE_S = 60
SHIFT = 8  # of the protocol's modifiers


def page_of(trace):
    """The page of a trace, as the tool writes it: no `<` of the JSON can end the element that holds it, or begin a comment."""
    text = TEMPLATE.read_text(encoding="utf-8")
    if text.count(MARKER) != 1:
        raise ValueError(f"{TEMPLATE}: {text.count(MARKER)} markers, need 1")
    return text if trace is None else text.replace(MARKER, json.dumps(trace).replace("<", "\\u003c"))


@contextlib.contextmanager
def chromium():
    """A browser that tells of every request and of everything in its console, and that reaches no network."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for switch in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--force-prefers-reduced-motion",
        "--hide-scrollbars",
        "--disable-frame-rate-limit",
        "--disable-gpu-vsync",
        "--disable-background-networking",
        "--disable-component-update",
    ):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
    try:
        driver.set_page_load_timeout(DEADLINE_S)
        driver.set_script_timeout(DEADLINE_S)
        driver.execute_cdp_cmd("Network.enable", {})
        driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["http://*", "https://*", "ws://*", "wss://*"]})
        yield driver
    finally:
        driver.quit()


class Page:
    """What a browser shows of one file. Places are CSS pixels of the window, times us from the trace's begin."""

    def __init__(self, driver, file, *, width=1400, height=900, scale=1, scheme="light"):
        self.driver = driver
        driver.get("about:blank")
        for kind in ("browser", "performance"):
            driver.get_log(kind)  # what earlier pages left
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False},
        )
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )
        self.address = pathlib.Path(file).resolve().as_uri()
        driver.get(self.address)
        self.scale = scale
        self.state = self.wait_until_ready()

    def wait_until_ready(self):
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            state = self.js("return document.documentElement.dataset.ready")
            if state:
                return state
            if any(entry["level"] == "SEVERE" for entry in self.console()):
                break
            time.sleep(0.02)
        raise AssertionError(f"the page was not ready after {DEADLINE_S} s or an error: {self.faults}")

    faults = ()

    def console(self):
        """Entries of the console so far."""
        self.faults = [*self.faults, *self.driver.get_log("browser")]
        return self.faults

    def requests(self):
        """Addresses that the page asked for, but for itself; data: needs no network."""
        messages = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        asked = [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in asked if url != self.address and not url.startswith("data:")]

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def settle(self):
        """Until what was asked for is on the screen."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
        )

    def text(self, selector):
        return self.js("const one = document.querySelector(arguments[0]); return one && one.textContent", selector)

    def texts(self, selector):
        return self.js("return [...document.querySelectorAll(arguments[0])].map(one => one.textContent)", selector)

    def data(self, selector, name):
        return self.js(
            "return document.querySelector(arguments[0]).getAttribute('data-' + arguments[1])", selector, name
        )

    def click_on(self, selector):
        self.js("document.querySelector(arguments[0]).click()", selector)
        self.settle()

    def tip(self):
        """The text beside the bar of an event; None where there is none."""
        return self.js(
            "const tip = document.getElementById('tip'); return tip.hidden || tip.style.visibility === 'hidden'"
            " ? null : tip.innerText"
        )

    # Input, as the browser gets it from the system.

    def key(self, *keys):
        for key in keys:
            modifiers = SHIFT if len(key) == 1 and key.isupper() else 0
            for kind in ("keyDown", "keyUp"):
                self.driver.execute_cdp_cmd(
                    "Input.dispatchKeyEvent", {"type": kind, "key": key, "modifiers": modifiers}
                )
        self.settle()

    def mouse(self, kind, x, y, **more):
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})

    def move(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.settle()

    def wheel(self, x, y, notches, **more):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=100 * notches, **more)
        self.settle()

    def press(self, x, y, clicks=1):
        for number in range(1, clicks + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.mouse(kind, x, y, button="left", clickCount=number)
        self.settle()

    def drag(self, x0, x1, y, modifiers=0):
        self.mouse("mousePressed", x0, y, button="left", clickCount=1, modifiers=modifiers)
        for step in range(1, 5):
            self.mouse("mouseMoved", x0 + (x1 - x0) * step / 4, y, button="left", modifiers=modifiers)
        self.mouse("mouseReleased", x1, y, button="left", clickCount=1, modifiers=modifiers)
        self.settle()

    # What the timeline shows.

    @property
    def view(self):
        return self.js("return tandem.view")

    @property
    def total(self):
        return self.js("return tandem.total")

    @property
    def plot(self):
        return self.js("return tandem.plot")

    @property
    def stats(self):
        return self.js("return tandem.stats")

    @property
    def selected(self):
        return self.js("return tandem.selected")

    def lane(self, rank, name):
        """Where a lane is drawn: its y, in the window, and its height."""
        found = [lane for lane in self.js("return tandem.lanes()") if lane["rank"] == rank and lane["name"] == name]
        assert len(found) == 1, f"lane {name} of rank {rank}: {found}"
        return {**found[0], "y": found[0]["y"] + self.plot["top"]}

    def x_of(self, time_us):
        begin, end = self.view
        return self.plot["left"] + (time_us - begin) / (end - begin) * self.plot["width"]

    def time_of(self, x):
        begin, end = self.view
        return begin + (x - self.plot["left"]) / self.plot["width"] * (end - begin)

    def screenshot(self):
        self.settle()
        return PIL.Image.open(io.BytesIO(self.driver.get_screenshot_as_png())).convert("RGB")

    def color(self, name):
        """A colour of the page by its name, as (r, g, b)."""
        numbers = self.js("return colors[arguments[0]]", name)
        return tuple(int(number) for number in numbers[numbers.index("(") + 1 : -1].split(",")[:3])
