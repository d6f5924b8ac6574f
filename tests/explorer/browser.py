"""Opens a page in Debian's Chromium, without a network."""
from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
          "--disable-background-networking", "--disable-component-update", "--no-first-run")
_SECONDS = 60


def require_browser() -> None:
    """Skip the test where there is no Chromium; in CI, which installs it, fail."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"there is no {' and no '.join(missing)}, which .ci/run installs")
    if missing:
        pytest.skip(f"there is no {' and no '.join(missing)}: apt-get install chromium chromium-driver")


@contextmanager
def browser(width: int = 1600, height: int = 1000, scheme: str = "light") -> Iterator[webdriver.Chrome]:
    """A Chromium that has no network and keeps what pages log and ask for.

    Parameters
    ----------
    width, height : int
        Of the window.
    scheme : str
        What the system is said to prefer: ``light`` or ``dark``.
    """
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (*_FLAGS, f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.set_script_timeout(_SECONDS)
        driver.execute_cdp_cmd("Network.enable", {})
        driver.execute_cdp_cmd("Network.emulateNetworkConditions",
                               {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0})
        prefer(driver, scheme)
        yield driver
    finally:
        driver.quit()


def prefer(driver: webdriver.Chrome, scheme: str) -> None:
    """Have the system prefer light or dark."""
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                           {"features": [{"name": "prefers-color-scheme", "value": scheme}]})


def open_page(driver: webdriver.Chrome, path: Path) -> None:
    """Open a page of the explorer, and wait until its graph is drawn."""
    driver.get(path.as_uri())
    WebDriverWait(driver, _SECONDS).until(
        lambda driver: driver.execute_script("return document.documentElement.dataset.ready === 'true'"))


def complaints(driver: webdriver.Chrome) -> List[str]:
    """What the page has logged since this was last asked: errors and warnings alike."""
    return [entry["message"] for entry in driver.get_log("browser")]


def asked_for(driver: webdriver.Chrome) -> List[str]:
    """The addresses that the page has asked for, but for itself."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent: List[Dict[str, Any]] = [message["params"] for message in messages
                                  if message["method"] == "Network.requestWillBeSent"]
    return [item["request"]["url"] for item in sent if not item["request"]["url"].startswith(("file:", "data:"))]
