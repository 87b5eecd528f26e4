"""The sheet of an app in a browser: what it shows, to whom, and whether it stays true."""

import re
from typing import Any

import docker
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.browser.agent_page import AppOnAgent, log_in
from tests.support.browser.tabs import Tabs, alter, overflows, reload, serious_findings
from tests.support.browser.tricks import TRICKS, assert_only_text

pytest_plugins = ["tests.support.browser.fixtures"]
pytestmark = pytest.mark.real("chromium-headless-shell")
CHANGES = ("Start", "Stop", "Rebuild", "Rollback", "Delete")
STEPS = 60
LINES = """
cells => cells.map((cell) => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  return new Set(Array.from(range.getClientRects(), (rect) => Math.round(rect.top))).size;
})
"""
TICK = re.compile(r"tick-(\d+)")


def last_tick(page: Page) -> int:
    """Return the last time that the app has logged."""
    expect(page.get_by_role("log")).to_contain_text(TICK)
    return int(TICK.findall(page.get_by_role("log").inner_text())[-1])


def height_of(line: Locator) -> float:
    """Return how high a line of a chart begins above its base."""
    return 47 - float(str(line.get_attribute("points")).split(" ", 1)[0].split(",")[1])


def expect_later_tick(page: Page, last: int) -> None:
    """Wait until the log goes on."""
    page.wait_for_function(
        "last => Number(document.querySelector('.log').textContent.split('tick-').at(-1)) > last",
        arg=last,
    )


def test_what_an_app_says_is_text(app: AppOnAgent, tabs: Tabs) -> None:
    page = app.sheet(tabs)
    for trick in TRICKS:
        expect(page.get_by_role("log")).to_contain_text(trick)
    for trick in TRICKS[:3]:
        expect(page.locator("main dl")).to_contain_text(trick)
    chips = page.locator(".chip").all_text_contents()
    assert set(app.record()["labels"]) == set(chips)
    assert len(chips) > len(TRICKS) / 2
    assert_only_text(page)
    assert not overflows(page)
    for name in ("#/app/%3Cimg%20src=x%20onerror=alert(1)%3E", "#/app/%", "#/constructor"):
        page.evaluate("view => { location.hash = view; }", name)
        expect(page.locator("main h1")).to_be_visible()
        expect(page.locator("#connection")).not_to_have_text("")
        assert_only_text(page)


def test_a_key_that_may_read_has_no_buttons(app: AppOnAgent, tabs: Tabs) -> None:
    page = app.sheet(tabs, key=app.reader)
    expect(page.locator("main dl")).to_contain_text("State")
    for name in CHANGES:
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)


def test_the_sheet_says_which_command_changes_the_image(app: AppOnAgent, tabs: Tabs) -> None:
    page = app.sheet(tabs)
    image = app.record()["image"]
    hostname = app.agent.ask("GET", "/access").json()["hostname"]
    commands = [
        f"rollcall app update {hostname}/{app.name} --image {image}",
        f"rollcall update {app.name} --image {image}",
    ]
    codes = page.locator(".command code")
    expect(codes).to_have_text(commands)
    page.get_by_role("button", name=f"Copy {commands[0]}").click()
    page.context.grant_permissions(["clipboard-read"])
    assert page.evaluate("() => navigator.clipboard.readText()") == commands[0]
    # A later refresh keeps what is selected.
    for _ in range(2):
        with page.expect_response("**/history"):
            pass
    assert page.evaluate("() => getSelection().toString()") == commands[0]
    # No command holds a name that the agent does not know.
    page.evaluate("() => { location.hash = '#/app/x; reboot'; }")
    expect(page.locator(".notice")).to_be_visible()
    expect(codes).to_have_count(0)


def test_a_hostname_that_begins_like_an_option_is_last_in_a_command(
    app: AppOnAgent, tabs: Tabs
) -> None:
    page = app.sheet(tabs)
    alter(page, "**/access", lambda access: access.update(hostname="-web-1"))
    page.reload()
    image = app.record()["image"]
    expect(page.locator(".command code").first).to_have_text(
        f"rollcall app update --image {image} -- -web-1/{app.name}"
    )


def test_the_health_and_exit_codes_are_told(app: AppOnAgent, tabs: Tabs) -> None:
    page = log_in(tabs, app.agent)
    row = page.get_by_role("row", name=app.name)
    health = row.locator("td[data-title=Health]")
    expect(health).to_have_text("\N{EN DASH}")
    alter(page, "**/v1/apps", lambda body: body[0].update(healthy=True))
    expect(health).to_have_text("healthy")
    alter(page, "**/v1/apps", lambda body: body[0].update(healthy=False))
    expect(health).to_have_text("unhealthy")
    assert serious_findings(page) == []

    def with_deaths(events: Any) -> None:
        death = events[0] | {"action": "die", "outcome": None, "message": None}
        events[:] = [death | {"exit_code": 0}, death | {"exit_code": 137}]

    alter(page, f"**/v1/apps/{app.name}/events", with_deaths)
    page.get_by_role("link", name=app.name).click()
    expect(page.get_by_role("table", name="Events").locator("td[data-title=Outcome]")).to_have_text(
        ["exit code 137", "exit code 0"]
    )


def test_a_change_that_the_key_does_not_allow_is_refused_in_words(
    app: AppOnAgent, tabs: Tabs
) -> None:
    before = app.record()
    page = app.sheet(tabs, key=app.reader)
    # The key could write when the page asked for it, and cannot any more.
    alter(page, "**/access", lambda access: access.update(allow=["read", "write"]))
    reload(page)
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator(".notice.bad")).to_contain_text("reader")
    expect(page.get_by_role("button", name="Delete now")).to_have_count(0)
    assert app.record()["state"] == before["state"]


def test_a_wrong_key_is_refused_and_a_logout_forgets_the_key(app: AppOnAgent, tabs: Tabs) -> None:
    page = tabs.open(app.agent.base_url)
    page.get_by_label("Key", exact=True).fill("wrong \N{SNOWMAN}")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("The agent does not know this key.")
    assert serious_findings(page) == []
    page.get_by_label("Key", exact=True).fill(app.agent.key)
    page.keyboard.press("Enter")
    expect(page.locator("#connection")).to_have_text("Live")
    expect(page.locator("#hostname")).to_contain_text("host-")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Key", exact=True)).to_be_focused()
    expect(page.locator("#hostname")).to_have_text("agent")
    assert page.evaluate("() => sessionStorage.length + localStorage.length") == 0
    assert page.context.cookies() == []


def test_a_pull_shows_how_far_it_is(app: AppOnAgent, tabs: Tabs) -> None:
    page = app.sheet(tabs)
    progress = {"operation": "rebuild", "step": "pull", "percent": 40, "by": "ops", "since": ""}
    alter(page, f"**/v1/apps/{app.name}", lambda body: body.update(progress=progress))
    expect(page.locator("main dl")).to_contain_text("pull 40 %")
    alter(page, "**/v1/apps", lambda body: body[0].update(progress=progress | {"percent": None}))
    page.get_by_role("link", name="Apps").click()
    row = page.get_by_role("row", name=app.name)
    expect(row).to_contain_text("pull")
    expect(row).not_to_contain_text("%")


def test_an_app_that_is_unhealthy_or_dead_is_told_in_the_list_and_on_its_sheet(
    app: AppOnAgent, tabs: Tabs, docker_client: docker.APIClient
) -> None:
    page = log_in(tabs, app.agent)
    row = page.get_by_role("row", name=app.name)
    expect(row.locator(".state.fresh")).to_have_text("running")
    expect(row.locator(".problem")).to_have_count(0)
    check = {"healthy": False, "message": "status 500 at /"}
    alter(page, "**/v1/apps", lambda body: body[0].update(check))
    expect(row.locator(".problem")).to_have_text("It runs, but is unhealthy. Status 500 at /")
    page.unroute("**/v1/apps")
    loop = "ended by itself 3 times in the last 10 minutes, last with exit code 3"
    alter(page, "**/v1/apps", lambda body: body[0].update(message=loop, crashing=True))
    expect(row.locator(".problem")).to_have_text(f"E{loop[1:]}")
    expect(row.locator(".state.stale")).to_have_text("crashing")
    page.unroute("**/v1/apps")
    docker_client.stop(app.name, timeout=0)
    expect(row.locator(".problem")).to_contain_text(
        re.compile(r"It should run, but is exited\. Its last exit code is \d+\. Its container was")
    )
    expect(row.locator(".state.stale")).to_have_text("exited")
    page.get_by_role("link", name=app.name).click()
    notice = page.locator(".notice.bad")
    code = docker_client.inspect_container(app.name)["State"]["ExitCode"]
    expect(notice).to_contain_text(
        f"It should run, but is exited. Its last exit code is {code}. Its"
    )
    assert serious_findings(page) == []
    assert app.agent.ask("PUT", f"/v1/apps/{app.name}/start").status_code == 200
    expect(page.locator("main dl .state.fresh")).to_have_text("running")
    expect(notice).to_have_count(0)


def test_a_note_on_an_app_that_is_well_is_not_shown_as_a_problem(
    app: AppOnAgent, tabs: Tabs
) -> None:
    page = log_in(tabs, app.agent)
    row = page.get_by_role("row", name=app.name)
    note = "note: the app is not isolated from others yet"
    alter(page, "**/v1/apps", lambda body: body[0].update(message=note))
    expect(row.locator(".hint")).to_have_text(f"N{note[1:]}")
    expect(row.locator(".state.fresh")).to_have_text("running")
    expect(row.locator(".problem")).to_have_count(0)
    alter(page, f"**/v1/apps/{app.name}", lambda body: body.update(message=note))
    page.get_by_role("link", name=app.name).click()
    expect(page.locator("main dl")).to_contain_text(note)
    expect(page.locator(".notice.bad")).to_have_count(0)
    page.get_by_role("link", name="Apps").click()
    page.unroute("**/v1/apps")
    alter(page, "**/v1/apps", lambda body: body[0].update(message=note, healthy=False))
    expect(row.locator(".problem")).to_have_text(f"It runs, but is unhealthy. N{note[1:]}")
    assert serious_findings(page) == []


def test_only_the_last_events_are_listed_until_more_are_asked_for(
    app: AppOnAgent, tabs: Tabs
) -> None:
    def many(events: Any) -> None:
        message = "container-with-a-long-name " * 5
        events[:] = [events[0] | {"action": "restart", "message": message} for _ in range(300)]

    page = app.sheet(tabs)
    alter(page, f"**/v1/apps/{app.name}/events", many)
    rows = page.get_by_role("table", name="Events").locator("tbody tr")
    more = page.get_by_role("button", name="Show 100")
    expect(more).to_have_attribute("aria-expanded", "false")
    expect(rows).to_have_count(10)
    expect(page.locator(".card", has=more)).to_contain_text("The last 10 of 300.")
    for cell in ("Time", "What", "By"):  # no word is cut in two
        heights = rows.locator(f"[data-title={cell}]").evaluate_all(LINES)
        assert set(heights) == {1}
    more.press("Enter")
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="Show fewer").press("Enter")
    expect(rows).to_have_count(10)
    expect(more).to_be_focused()


def test_the_title_names_app_and_host_and_a_link_leads_to_the_host_at_its_registry(
    app: AppOnAgent, tabs: Tabs
) -> None:
    page = app.sheet(tabs)
    hostname = app.agent.ask("GET", "/access").json()["hostname"]
    rest = f"{hostname} \N{MIDDLE DOT} Rollcall agent"
    expect(page).to_have_title(f"{app.name} \N{MIDDLE DOT} {rest}")
    registries = page.get_by_role("navigation", name="Registries").get_by_role("link")
    expect(registries).to_have_count(0)  # this agent reports to none
    urls = ["http://127.0.0.2:7655", "https://registry.test/rollcall"]
    alter(page, "**/access", lambda access: access.update(registries=urls))
    page.evaluate("() => { location.hash = '#/apps'; }")
    reload(page)
    expect(page).to_have_title(f"Apps \N{MIDDLE DOT} {rest}")
    expect(registries).to_have_text(["Registry 127.0.0.2:7655", "Registry registry.test"])
    found = [link.get_attribute("href") for link in registries.all()]
    assert found == [f"{url}/#/host/{hostname}" for url in urls]
    assert serious_findings(page) == []


def test_the_list_of_apps_counts_them_and_is_sorted_by_its_columns(
    app: AppOnAgent, tabs: Tabs
) -> None:
    def four(apps: Any) -> None:
        texts: dict[str, Any] = {"labels": [], "description": "", "message": None}
        one = apps[0] | {"state": "running", "desired": "running"} | texts
        apps[:] = [
            one | {"name": "a", "http_port": 4},
            one | {"name": "b", "http_port": 3, "desired": "stopped", "state": "exited"},
            one | {"name": "c", "http_port": 20, "state": "exited"},
            one | {"name": "d", "http_port": 1, "healthy": True},
        ]

    page = log_in(tabs, app.agent)
    alter(page, "**/v1/apps", four)
    expect(page.locator(".found")).to_have_text("4 apps, 1 with a problem, 1 stopped")
    names = page.locator("table.hosts tbody th")
    expect(names).to_have_text(["a", "b", "c", "d"])
    for column, order in (
        ("State", "cbad"),
        ("Ports", "dbac"),
        ("Ports", "cabd"),
        ("Health", "dabc"),
        ("App", "abcd"),
    ):
        page.get_by_role("button", name=column).click()
        expect(names).to_have_text(list(order))
    page.set_viewport_size({"width": 360, "height": 740})
    expect(page.get_by_role("button", name="State")).to_be_visible()
    assert not overflows(page)
    assert serious_findings(page) == []


def test_charts_have_gaps_where_nothing_was_measured(app: AppOnAgent, tabs: Tabs) -> None:
    def hour(usage: Any) -> None:
        memory = [None] * 10 + [2**20] * 20 + [None] * 5 + [2**21] + [None] * 4 + [2**21] * 20
        cpu = [None if value is None else 1.5 for value in memory[:-1]] + [None]
        usage["apps"] = [{"name": app.name, "cpu_percent": cpu, "memory_bytes": memory}]

    page = app.sheet(tabs)
    alter(page, "**/v1/usage", hour)
    memory_limit, cpu_limit = app.record()["memory"], app.record()["cpu"]
    chart = page.get_by_role("img", name=f"Memory: 2.0 of {memory_limit} MiB")
    expect(chart).to_be_visible()
    lines = [
        [float(point.split(",")[0]) for point in str(line.get_attribute("points")).split()]
        for line in chart.locator("polyline").all()
    ]
    assert [len(line) for line in lines] == [20, 2, 20]
    step = 300 / (STEPS - 1)
    ends = [(line[0] / step, line[-1] / step) for line in lines]
    for (left, right), expected in zip(ends, [(10, 29), (34.5, 35.5), (40, 59)], strict=True):
        assert (left, right) == pytest.approx(expected, abs=0.1)
    expect(page.get_by_role("img", name="CPU: no recent value")).to_be_visible()
    # The top of a chart is the limit.
    share = memory_limit / 2
    assert height_of(chart.locator("polyline").last) == pytest.approx(45 / share, abs=0.1)
    page.get_by_role("link", name="Apps").click()
    row = page.get_by_role("row", name=app.name).get_by_role("img")
    expect(row).to_have_count(1)
    words = f"Last hour: CPU no recent value, Memory 2.0 of {memory_limit} MiB"
    expect(row).to_have_attribute("aria-label", words)
    assert height_of(row.locator(".cpu polyline").first) == pytest.approx(
        45 * 1.5 / cpu_limit, abs=0.1
    )
    assert height_of(row.locator(".memory polyline").last) == pytest.approx(45 / share, abs=0.1)


def test_an_agent_that_goes_away_and_comes_back_is_told_and_its_logs_go_on(
    app: AppOnAgent, tabs: Tabs
) -> None:
    page = app.sheet(tabs)
    last = last_tick(page)
    expect_later_tick(page, last)
    connection = page.locator("#connection")
    app.agent.freeze()
    try:
        expect(connection).to_contain_text("The agent does not answer since")
    finally:
        app.agent.resume()
    expect(connection).to_have_text("Live")
    app.agent.kill()
    expect(connection).to_contain_text("The agent does not answer since")
    expect(page.get_by_role("heading", name=app.name)).to_be_visible()  # what it knew stays
    last = last_tick(page)
    app.agent.start()
    expect(connection).to_have_text("Live")
    expect_later_tick(page, last)
