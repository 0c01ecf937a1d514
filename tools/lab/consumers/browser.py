"""Opens a page in headless Chromium and prints what is in it, as JSON: what the console and the
network said, and each picture with its elements as they were laid out.

    browser.py PAGE CHROMIUM CHROMEDRIVER

Run with the Python of a venv that has selenium.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

LOOK = """
return {
  sentence: document.getElementById('sentence').textContent,
  mode: document.compatMode,
  rows: Array.from(document.querySelectorAll('table tr')).slice(1).map(
    row => Array.from(row.cells).map(cell => cell.textContent)),
  resources: performance.getEntriesByType('resource').map(entry => entry.name),
  pictures: Array.from(document.querySelectorAll('svg')).map(svg => ({
    kind: svg.getAttribute('class'), name: svg.dataset.name,
    title: svg.previousElementSibling.textContent,
    box: [svg.getBoundingClientRect().width, svg.getBoundingClientRect().height],
    points: Array.from(svg.querySelectorAll('[data-y]')).map(element => {
      const box = element.getBoundingClientRect(), all = svg.getBoundingClientRect();
      return {kind: element.getAttribute('class'), x: element.dataset.x, y: element.dataset.y,
              left: box.left - all.left, top: box.top - all.top,
              middle: box.top - all.top + box.height / 2,
              width: box.width, height: box.height,
              fill: getComputedStyle(element).fill};
    })}))
};
"""


def main() -> int:
    """The exit code."""
    page, chromium, driver_path = sys.argv[1:]
    options = Options()
    options.binary_location = chromium
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--disable-background-networking", "--window-size=1000,900"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_path))
    try:
        driver.get(Path(page).resolve().as_uri())
        found = driver.execute_script(LOOK)
        found["console"] = [entry["message"] for entry in driver.get_log("browser")]
        found["browser"] = driver.capabilities["browserVersion"]
        print(json.dumps(found))
    finally:
        driver.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
