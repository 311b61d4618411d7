"""A real browser opens /docs, without access to other hosts, and tries a request."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

from support.fleet import Fleet

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; on Debian, as root: apt-get install chromium")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet")), brokers=1, readers=1) as fleet:
        yield fleet


@pytest.fixture
def page() -> Iterator[Page]:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox does not work for root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser.new_page()
        browser.close()


def test_docs_page_works_offline_and_sends_its_first_example(fleet: Fleet, page: Page) -> None:
    """`/docs` needs no other host, logs no error, and its first example works with a click."""
    hosts: set[str] = set()
    errors: list[str] = []
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(f"{fleet.url}/docs")
    operation = page.locator("#operations-topics-post_topics")
    operation.locator("button.opblock-summary-control").click()
    operation.locator("button.try-out__btn").click()
    body = operation.locator("textarea.body-param__text")
    assert '"name": "orders"' in body.input_value(), "the example works"
    operation.locator("button.execute").click()
    answer = operation.locator(".live-responses-table .response-col_description pre").first
    answer.wait_for()
    assert "Topic 'orders' created successfully." in answer.inner_text()
    assert fleet.get("/topics")["topics"] == ["orders"]
    show = page.locator("#operations-topics-get_topics_name_partitions")
    show.locator("button.opblock-summary-control").click()
    show.locator("button.try-out__btn").click()
    show.locator("button.execute").click()
    answer = show.locator(".live-responses-table .response-col_description pre").first
    answer.wait_for()
    assert '"next_offset": 0' in answer.inner_text(), "a path parameter has an example, too"
    assert hosts == {f"127.0.0.1:{fleet.port}"}
    assert errors == []
