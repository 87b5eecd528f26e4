"""The registry's page in a browser: finding hosts, and what keeps it readable."""

import re
from pathlib import Path
from typing import Any

import pytest
import requests
from playwright.sync_api import Page, Route, expect

from dev.waiting import until
from tests.support.browser.keyboard import tab_to
from tests.support.browser.registry_page import hosts, log_in, post
from tests.support.browser.tabs import (
    Tabs,
    alter,
    go,
    overflows,
    reload,
    serious_findings,
    stop_timers,
)
from tests.support.daemons import Daemon, Daemons
from tests.support.run.release import some_of

pytest_plugins = ["tests.support.browser.fixtures"]
pytestmark = [pytest.mark.real("chromium-headless-shell"), pytest.mark.page("docs/pages.md")]
LINE = 20  # pixels
HEIGHTS = "elements => elements.map(element => element.getBoundingClientRect().height)"
TOPS = "elements => elements.map(element => element.getBoundingClientRect().top)"
ARE_CUT = "elements => elements.map(element => element.scrollWidth > element.clientWidth)"
VIEWS = ("#/hosts", "#/host/web-1", "#/apps", "#/services", "#/registry")
AGENT = {
    "agent.id": "1",
    "agent.url": "https://web-1.test:7656",
    "agent.version": "1.0",
    "apps.total": "4",
    "apps.running": "1",
    "apps.stopped": "1",
    "apps.unhealthy": "1",
    "rack": "r12",
}
NODES = '[{"hostname": "web-1", "labels": [], "kv": {}, "last_update": 1}]'
LABELS = ["service:web", "app:shop", "prometheus:web:port:8080", "prometheus:web:a-b:c"]


def test_files_are_open_and_data_is_not(daemons: Daemons) -> None:
    registry = daemons.registry()
    page = requests.get(registry.base_url + "/", timeout=10)
    assert page.status_code == 200
    policy = page.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Referrer-Policy"] == "no-referrer"
    again = requests.get(
        registry.base_url + "/", headers={"If-None-Match": page.headers["ETag"]}, timeout=10
    )
    assert (again.status_code, again.content) == (304, b"")
    for path in ("/nodes", "/status", "/services", "/pages/"):
        assert requests.get(registry.base_url + path, timeout=10).status_code == 401
    assert requests.post(registry.base_url + "/", timeout=10).status_code == 401


def test_the_settings_turn_the_page_off(daemons: Daemons) -> None:
    registry = daemons.registry(pages=False)
    for path in ("/", "/pages/common/style.css"):
        assert requests.get(registry.base_url + path, timeout=10).status_code == 401
        assert registry.ask("GET", path).status_code == 404


def test_a_wrong_key_is_rejected_and_a_logout_forgets_the_key(registry: Daemon, tabs: Tabs) -> None:
    page = tabs.open(registry.base_url)
    page.get_by_label("Key", exact=True).fill("w\N{LATIN SMALL LETTER O WITH DIAERESIS}rong \u2603")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("The registry does not know this key.")
    page.get_by_label("Key", exact=True).fill(registry.key)
    page.keyboard.press("Enter")
    expect(page.locator("#connection")).to_have_text("Live")
    reload(page)
    expect(page.locator("#connection")).to_have_text("Live")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Key", exact=True)).to_be_focused()
    assert page.evaluate("() => sessionStorage.length + localStorage.length") == 0
    assert page.context.cookies() == []


def test_a_stale_host_is_found_by_keyboard_alone(daemons: Daemons, tabs: Tabs) -> None:
    registry = daemons.registry(nodes={"stale_after_seconds": 1})
    post(registry, "web-1", LABELS, AGENT)
    post(registry, "web-2", ["service:mail"], {})
    page = log_in(tabs, registry)
    expect(page.locator(".tile.stale strong")).to_have_text("2")
    expect(page.locator("table.hosts .state.stale")).to_have_count(2)
    tab_to(page, "Search")
    page.keyboard.type("SERVICE:W")
    rows = page.locator("table.hosts tbody tr")
    expect(rows).to_have_count(1)
    assert hosts(page) == ["web-1"]
    tab_to(page, "Fresh")
    page.keyboard.press("Enter")
    expect(page.locator(".found")).to_have_text(
        "No host matches all of Search \N{LEFT DOUBLE QUOTATION MARK}SERVICE:W"
        "\N{RIGHT DOUBLE QUOTATION MARK}, State \N{LEFT DOUBLE QUOTATION MARK}Fresh"
        "\N{RIGHT DOUBLE QUOTATION MARK}."
    )
    tab_to(page, "Stale")
    page.keyboard.press("Space")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("1 of 4 run, 1 stopped2 down1 unhealthy last known")
    tab_to(page, "web-1")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()  # the link is gone
    sheet = page.locator("main")
    expect(sheet).to_contain_text("label 'a-b' is sanitized to a_b")
    expect(sheet).to_contain_text("web-1:8080")
    expect(sheet).to_contain_text(
        "1 of 4 run, 1 stopped2 down1 unhealthy, as it said last. Its agent shows them."
    )
    expect(sheet).to_contain_text(
        "Stopped by somebody, or ended by itself: the agent's page shows which."
    )
    tab_to(page, "Open its agent at https://web-1.test:7656")
    link = page.get_by_role("link", name="Open its agent")
    expect(link).to_have_attribute("href", "https://web-1.test:7656/")
    expect(link).to_have_attribute("rel", re.compile("noopener"))


def test_each_key_press_in_a_filter_asks_once_and_waits_for_no_timer(
    registry: Daemon, tabs: Tabs
) -> None:
    post(registry, "web-1", LABELS, AGENT)
    post(registry, "web-2", ["service:mail"], {"rack": "r1"})
    page = log_in(tabs, registry)
    stop_timers(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rpartition("limit=50&")[2]))
    table = page.locator("table.hosts tbody")
    for field, key, value in (
        ("Label", "label", "service:mail"),
        ("Key and value", "kv", "rack:r1"),
    ):
        page.get_by_label(field).fill(value[:-1])
        expect(page.locator(".found")).to_have_text(
            f"No host matches {field} \N{LEFT DOUBLE QUOTATION MARK}{value[:-1]}"
            "\N{RIGHT DOUBLE QUOTATION MARK}."
        )
        with page.expect_response("**/status"):
            page.keyboard.type(value[-1])
        expect(table).to_contain_text("web-2")
        assert hosts(page) == ["web-2"]
        query = f"{key}={value.replace(':', '%3A')}"
        assert [url for url in asked if url.startswith(query)] == [query]
        page.get_by_label(field).fill("")
        expect(table).to_contain_text("web-1")
    for button, found in (("Fresh", 2), ("Stale", 0), ("All", 2)):
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("button", pressed=True)).to_have_text(button)
        expect(table.locator("tr")).to_have_count(found)
    page.locator(".tile.down", has_text="1host with apps down").click()
    expect(page.get_by_role("button", pressed=True)).to_have_text("Apps down")
    expect(table.locator("tr")).to_have_count(1)
    assert hosts(page) == ["web-1"]
    table.get_by_role("link", name="service:web", exact=True).click()
    expect(page.get_by_label("Label")).to_have_value("service:web")


def test_a_button_clears_all_filters(registry: Daemon, page_of_registry: Page) -> None:
    post(registry, "web-1", LABELS, AGENT)
    page = page_of_registry
    go(page, "#/hosts")
    rows = page.locator("table.hosts tbody tr")
    expect(rows).to_have_count(1)
    clear = page.get_by_role("button", name="Clear filters")
    expect(clear).to_have_count(0)
    page.get_by_role("button", name="Stale").click()
    expect(rows).to_have_count(0)
    clear.click()
    expect(rows).to_have_count(1)
    page.get_by_label("Label").fill("x")
    page.get_by_role("button", name="Apps down").click()
    expect(rows).to_have_count(0)
    tab_to(page, "Clear filters")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    expect(page.get_by_label("Search")).to_be_focused()
    expect(page.get_by_label("Label")).to_have_value("")
    expect(page.get_by_role("button", pressed=True)).to_have_text("All")
    expect(clear).to_have_count(0)
    assert page.evaluate("() => location.hash") == "#/hosts"


def test_changes_are_shown_and_the_focus_stays(registry: Daemon, page_of_registry: Page) -> None:
    post(registry, "web-1", LABELS, AGENT)
    page = page_of_registry
    go(page, "#/hosts")
    page.get_by_role("link", name="web-1").focus()
    post(registry, "web-0", [], {})
    expect(page.locator("table.hosts tbody tr")).to_have_count(2)
    expect(page.get_by_role("link", name="web-1")).to_be_focused()
    registry.ask("DELETE", "/nodes/web-0")
    expect(page.locator("table.hosts tbody tr")).to_have_count(1)
    expect(page.locator(".tile.down strong")).to_have_text("1")
    post(registry, "web-1", LABELS, AGENT | {"apps.running": "3", "apps.unhealthy": "0"})
    expect(page.locator(".tile.down strong")).to_have_text("0")


def test_stale_hosts_are_asked_for_unless_all_on_the_page_are_young_by_the_clock_of_one_registry(
    registry: Daemon, page_of_registry: Page
) -> None:
    post(registry, "web-1", LABELS, AGENT)
    page = page_of_registry
    go(page, "#/hosts")

    def with_a_stale_host(status: Any) -> None:
        status["nodes"]["stale"] = 1  # on another page of the list

    def shared(status: Any) -> None:
        with_a_stale_host(status)
        status["store"] = {
            "kind": "nats",
            "url": "nats://192.0.2.1",
            "shared": True,
            "state": "unreachable",
            "message": "no server answers",
        }
        status["warming_seconds"] = 90
        status["members"] = [
            {"name": name, "run": name, "own": name == "one", "seen_seconds": 5.0}
            for name in ("one", "two")
        ]

    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    alter(page, "**/status", with_a_stale_host)
    expect(page.locator(".tile.stale strong")).to_have_text("1")
    for _ in range(2):
        with page.expect_response("**/nodes?*"):
            pass
    assert [url for url in asked if "stale=true" in url] == []

    # Another registry, whose clock is ahead, has taken its last heartbeat.
    page.route("**/nodes?*stale=true", lambda route: route.fulfill(body=NODES))
    alter(page, "**/status", shared)
    expect(page.locator("tr.is-stale .state")).to_have_text("stale")
    page.get_by_role("link", name="Registry", exact=True).click()
    notices = page.locator(".notice")
    expect(notices).to_have_text(
        [
            "The store is unreachable. no server answers",
            "The registry warms up: targets are withheld for 90 s, until the hosts have reported.",
        ]
    )
    expect(page.get_by_role("table", name="Members").get_by_role("row")).to_have_text(
        ["RegistryLast seen", "one (this one)5 s ago", "two5 s ago"]
    )
    expect(page.locator("dl .state.stale")).to_have_text("unreachable")
    assert serious_findings(page) == []


def test_each_view_says_that_hosts_may_be_missing_or_that_the_store_is_away(
    daemons: Daemons, tabs: Tabs
) -> None:
    registry = daemons.registry(nodes={"warm_up_seconds": 300})
    post(registry, "web-1", LABELS, AGENT)
    page = log_in(tabs, registry)

    def old(route: Route) -> None:
        answered = route.fetch()
        route.fulfill(response=answered, headers={**answered.headers, "Rollcall-Store-Age": "61"})

    def each_view_says(text: str) -> None:
        for view in ("#/services", "#/host/web-1", "#/hosts"):
            go(page, view)
            expect(page.locator("#connection")).to_contain_text(text)

    each_view_says("Live, but the registry warms up: hosts that have not reported to it yet")
    page.route(re.compile("/(nodes|services)"), old)
    each_view_says("The registry has not reached its store since")


def test_services_and_their_scrapers_and_rejected_hosts_are_shown(
    daemons: Daemons, tabs: Tabs
) -> None:
    registry = daemons.registry(nodes={"denied": ["lost-1", "old-*"]})
    assert registry.ask("POST", "/nodes/lost-1", json={"labels": [], "kv": {}}).status_code == 403
    post(registry, "web-1", LABELS, AGENT)
    clone = {"labels": [], "kv": {"agent.id": "2"}}
    assert registry.ask("POST", "/nodes/web-1", json=clone).status_code == 409
    post(registry, "web-2", ["prometheus:mail"], {})
    registry.ask("GET", "/prometheus/web?format=http_sd")
    page = log_in(tabs, registry)
    expect(page.locator(".tile.rejected strong")).to_have_text("1")
    page.get_by_role("link", name="Services").click()
    row = page.get_by_role("row", name="web")
    expect(row).to_contain_text("ops from 127.0.0.1")
    services = page.locator("table tbody tr")
    expect(services).to_have_count(2)
    page.get_by_label("Search").fill("MAI")
    expect(services).to_have_count(1)
    expect(services).to_contain_text("nobody since the start")
    page.keyboard.type("x")
    expect(page.get_by_text("No service matches.")).to_be_visible()
    go(page, "#/services?search=web")
    expect(row).to_be_visible()
    expect(services).to_have_count(1)
    page.get_by_role("link", name="Registry", exact=True).click()
    expect(page.get_by_role("table", name="Rejected")).to_contain_text("409")
    denied = "2 names and patterns; 1 of these hosts reported in the last hour"
    expect(page.get_by_text(denied)).to_be_visible()


def test_the_page_says_that_the_registry_is_away_and_goes_on_when_it_is_back(
    daemons: Daemons, tabs: Tabs
) -> None:
    registry = daemons.registry()
    post(registry, "web-1", LABELS, AGENT)
    page = log_in(tabs, registry)
    connection = page.locator("#connection")
    registry.freeze()
    try:
        expect(connection).to_contain_text("The registry does not answer since")
    finally:
        registry.resume()
    expect(connection).to_have_text("Live")
    registry.kill()
    expect(connection).to_contain_text("does not answer since")
    assert hosts(page) == ["web-1"]  # what it knew stays
    registry.start()
    post(registry, "web-2", [], {})
    expect(connection).to_have_text("Live")
    expect(page.locator("table.hosts tbody tr")).to_have_count(2)


def test_a_list_in_pages_says_which_of_how_many_hosts_are_shown(
    registry: Daemon, page_of_registry: Page
) -> None:
    for number in range(102):
        apps = {"apps.total": "1", "apps.running": str(number % 2)}
        post(registry, f"web-{number:03}", ["zone:a"], apps)
    page = page_of_registry
    go(page, "#/hosts")
    found = page.locator(".found")
    expect(found).to_have_text("Hosts 1 to 50 of 102")
    expect(page.locator(".tile.down")).to_have_text("51hosts with apps down")
    expect(page.locator("th button")).to_have_count(0)  # the other pages would not be sorted
    page.get_by_role("link", name="Next page").click()
    expect(found).to_have_text("Hosts 51 to 100 of 102")
    page.get_by_role("link", name="Next page").click()
    expect(found).to_have_text("Hosts 101 to 102 of 102")
    reload(page)
    expect(found).to_have_text("Hosts 101 to 102 of 102")
    page.get_by_role("link", name="First page").click()
    expect(found).to_have_text("Hosts 1 to 50 of 102")
    page.get_by_role("button", name="Apps down").click()
    expect(found).to_have_text("Hosts 1 to 50 of 51")
    page.get_by_label("Search").fill("web")
    expect(found).to_have_text("Hosts 1 to 50 of 51")
    page.get_by_role("button", name="All").click()
    expect(found).to_have_text("Hosts 1 to 50 of 102")
    page.get_by_role("button", name="Apps down").click()
    page.get_by_role("link", name="Next page").click()
    expect(found).to_have_text("Hosts 51 to 51 of 51")
    page.get_by_label("Search").fill("web-00")
    expect(found).to_have_text("5 hosts found")


def test_the_lists_of_hosts_and_services_are_sorted_by_their_columns(
    registry: Daemon, tabs: Tabs
) -> None:
    for name, down, labels in (
        ("web-1", 0, ["prometheus:web"]),
        ("web-2", 2, ["prometheus:mail", "prometheus:web"]),
        ("web-3", 1, []),
    ):
        kv = {"apps.total": "3", "apps.running": str(3 - down), "agent.version": f"{down}.0"}
        post(registry, name, labels, kv)
    page = log_in(tabs, registry)
    table = page.locator("table.hosts tbody")
    expect(table.locator("tr")).to_have_count(3)
    tab_to(page, "Apps")
    page.keyboard.press("Enter")
    expect(table.locator("th")).to_have_text(["web-2", "web-3", "web-1"])
    expect(page.get_by_role("button", name="Apps", exact=True)).to_be_focused()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Apps")
    page.keyboard.press("Enter")
    expect(table.locator("th")).to_have_text(["web-1", "web-3", "web-2"])
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Apps")
    post(registry, "web-0", [], {})  # it says nothing of apps, so it is last
    expect(table.locator("th")).to_have_text(["web-1", "web-3", "web-2", "web-0"])
    assert serious_findings(page) == []
    page.get_by_role("link", name="Services").click()
    services = page.locator("table tbody th")
    expect(services).to_have_text(["mail", "web"])
    page.get_by_role("button", name="Hosts").click()
    page.get_by_role("button", name="Hosts").click()
    expect(services).to_have_text(["web", "mail"])
    page.get_by_role("link", name="Hosts", exact=True).click()  # the order stays
    expect(table.locator("th")).to_have_text(["web-1", "web-3", "web-2", "web-0"])


def test_each_view_has_a_title_and_a_slash_leads_to_the_search(
    registry: Daemon, tabs: Tabs
) -> None:
    post(registry, "web-1", LABELS, AGENT)
    page = log_in(tabs, registry)
    search = page.get_by_label("Search")
    for view, title in (
        ("#/hosts", "Hosts"),
        ("#/services", "Services"),
        ("#/registry", "Registry"),
        ("#/host/web-1", "web-1"),
    ):
        go(page, view)
        expect(page).to_have_title(f"{title} - Rollcall registry")
        page.keyboard.press("/")
        if view in {"#/hosts", "#/services"}:
            expect(search).to_be_focused()
            page.keyboard.type("a/b")
            expect(search).to_have_value("a/b")
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_title("Rollcall registry")


def test_an_answer_that_is_lost_or_wrong_ends_no_refresh(registry: Daemon, tabs: Tabs) -> None:
    post(registry, "web-1", LABELS, AGENT)
    page = log_in(tabs, registry)
    connection = page.locator("#connection")
    alter(page, "**/status", lambda status: status.pop("nodes"))
    expect(connection).to_contain_text("This page cannot show the answer of the registry")
    page.unroute("**/status")
    expect(connection).to_have_text("Live")
    page.route("**/status", lambda route: route.fulfill(status=502, body="<html>Bad gateway"))
    expect(connection).to_have_text("HTTP status 502 without a message: a proxy may have sent it.")
    page.unroute("**/status")
    expect(connection).to_have_text("Live")
    # The network has lost a request: nothing comes.
    page.clock.install()
    reload(page)
    expect(connection).to_have_text("Live")
    lost: list[Route] = []

    def lose_one(route: Route) -> None:
        if lost:
            route.continue_()
        else:
            lost.append(route)

    page.route("**/status", lose_one)
    with page.expect_request("**/status"):
        page.clock.fast_forward(4_000)
    page.clock.fast_forward(6_000)
    expect(connection).to_contain_text("The registry does not answer since")
    page.clock.fast_forward(40_000)
    expect(connection).to_have_text("Live")


@pytest.mark.parametrize(
    "scheme", some_of(["light", "dark"], "light", reason="the same views in other colours")
)
def test_all_views_are_accessible_and_fit_a_telephone(
    daemons: Daemons, tabs: Tabs, scheme: str
) -> None:
    registry = daemons.registry()
    post(registry, "web-1", [*LABELS, "m" * 1000], AGENT | {"k" * 200: "v" * 5000})
    registry.ask("POST", "/nodes/web-1", json={"labels": [], "kv": {"agent.id": "2"}})
    options = {"color_scheme": scheme, "viewport": {"width": 360, "height": 740}}
    login = tabs.open(registry.base_url, **options)
    login.get_by_label("Key", exact=True).wait_for()
    assert serious_findings(login) == []
    page = log_in(tabs, registry, **options)
    for view in VIEWS:
        go(page, view)
        page.locator(f"{'.hosts' if view == '#/hosts' else '.sheet, table'} >> nth=0").wait_for()
        expect(page.locator("main")).to_contain_text(
            {"#/apps": "shop", "#/services": "web", "#/registry": "Version"}.get(
                view, "service:web"
            )
        )
        assert serious_findings(page) == []
        assert not overflows(page)
        if view == "#/hosts":
            assert top(page, "table.hosts") < top(page, ".chart")
            heights = page.locator(".tile span").evaluate_all(HEIGHTS)
            assert {round(height / LINE) for height in heights} == {1}
            assert page.locator(".tile").evaluate_all(ARE_CUT) == [False] * len(heights)
            # State, host and time are one line.
            assert abs(top(page, ".state.fresh") - top(page, "td[data-heard]")) < LINE / 2


def top(page: Page, selector: str) -> float:
    """Return where an element begins, from the top of the page."""
    # In one step, since the page makes its elements anew every few seconds.
    tops: list[float] = page.locator(selector).evaluate_all(TOPS)
    return tops[0]


def test_the_roll_call_shows_who_is_missing(daemons: Daemons, tabs: Tabs, tmp_path: Path) -> None:
    file = tmp_path / "expected"
    file.write_text("web-1\nweb-2\nlaptop away\n")
    registry = daemons.registry(nodes={"expected": str(file)})
    for hostname in ("web-1", "new-2"):
        post(registry, hostname, [], {})
    until(
        lambda: registry.ask("GET", "/status").json()["expected"]["roll_call"],
        "the list is read",
        within=60,
    )
    page = log_in(tabs, registry)
    expect(page.locator(".tile.absent strong")).to_have_text("1")

    page.locator(".tile.absent").click()

    expect(page.locator(".found")).to_have_text("1 of 3 expected hosts report")
    rows = page.locator("table.hosts tbody tr")
    expect(rows).to_have_count(3)
    assert [row.split()[:2] for row in rows.all_inner_texts()] == [
        ["away", "laptop"],
        ["unexpected", "new-2"],
        ["absent", "web-2"],
    ]
    expect(page.get_by_role("button", name="Roll call")).to_have_attribute("aria-pressed", "true")
    post(registry, "web-2", [], {})
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Clear filters").click()
    expect(rows).to_have_count(3)
    expect(page.locator("table.hosts .state.fresh")).to_have_count(3)
