"""The sheet of an app in a browser: what it shows, to whom, and whether it stays true."""

import re
from collections.abc import Callable
from typing import Any

import docker
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.browser.agent_page import AppOnAgent
from tests.support.browser.tabs import Tabs, alter, go, overflows, reload, serious_findings
from tests.support.browser.tricks import TRICKS, assert_only_text, shown
from tests.support.cli.fake_agent import APP_RECORD
from tests.support.verdicts import CASES

pytest_plugins = ["tests.support.browser.fixtures"]
pytestmark = pytest.mark.real("chromium-headless-shell")
CHANGES = ("Start", "Stop", "Rebuild", "Rollback", "Delete")
STEPS = 60
NOON = 1_800_000_000  # seconds of Unix time
CLOCK = """
seconds => new Date(seconds * 1000)
  .toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false })
"""
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


def test_what_an_app_says_is_text(app: AppOnAgent, apps: Page) -> None:
    page = app.open_sheet(apps)
    for trick in TRICKS:
        expect(page.get_by_role("log")).to_contain_text(shown(trick))
    for trick in TRICKS[:3]:
        expect(page.locator("main dl")).to_contain_text(trick)
    chips = page.locator(".chip").all_text_contents()
    assert set(map(shown, app.record()["labels"])) == set(chips)
    assert len(chips) > len(TRICKS) / 2
    assert_only_text(page)
    assert not overflows(page)
    for name in ("#/app/%3Cimg%20src=x%20onerror=alert(1)%3E", "#/app/%", "#/constructor"):
        go(page, name)
        expect(page.locator("main h1")).to_be_visible()
        expect(page.locator("#connection")).not_to_have_text("")
        assert_only_text(page)


def test_the_sheet_gives_the_verdict_of_the_command(app: AppOnAgent, apps: Page) -> None:
    page = app.open_sheet(apps)
    expect(page.locator(".title")).to_contain_text("running, unchecked")
    found = page.evaluate(
        """async ([record, cases]) => {
            const { verdict } = await import(new URL("pages/agent/verdict.js", location.href));
            return cases.map(([fields, events]) => verdict({ ...record, ...fields }, events));
        }""",
        [APP_RECORD, [[fields, events] for fields, events, _ in CASES]],
    )

    assert found == [text for _, _, text in CASES]


def test_the_sheet_says_which_command_changes_the_image(app: AppOnAgent, apps: Page) -> None:
    page = app.open_sheet(apps)
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
    page.locator("main dl code").evaluate("image => getSelection().selectAllChildren(image)")
    for _ in range(2):
        with page.expect_response("**/history"):
            pass
    assert page.evaluate("() => getSelection().toString()") == image
    # No command holds a name that the agent does not know.
    go(page, "#/app/x; reboot")
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


def test_the_health_and_exit_codes_are_reported(app: AppOnAgent, apps: Page) -> None:
    page = apps
    row = page.get_by_role("row", name=app.name)
    state = row.locator("td[data-title=State] .states-of-app")
    expect(state).to_have_text("running")
    alter(page, "**/v1/apps", lambda body: body[0].update(healthy=True))
    expect(state).to_have_text("runninghealthy")
    alter(page, "**/v1/apps", lambda body: body[0].update(healthy=False))
    expect(state).to_have_text("unhealthy")
    assert serious_findings(page) == []

    def with_deaths(events: Any) -> None:
        death = events[0] | {"action": "die", "outcome": None, "message": None}
        events[:] = [death | {"exit_code": 0}, death | {"exit_code": 137}]

    alter(page, f"**/v1/apps/{app.name}/events", with_deaths)
    page.get_by_role("link", name=app.name).click()
    outcomes = page.get_by_role("list", name="Events").locator(".outcome")
    expect(outcomes).to_have_text(["exit code 137", "exit code 0"])


def test_a_key_that_may_read_has_no_buttons_and_a_change_without_a_key_is_rejected_in_words(
    app: AppOnAgent, tabs: Tabs
) -> None:
    before = app.record()
    page = app.sheet(tabs, key=app.reader)
    expect(page.locator("main dl")).to_contain_text("Image")
    for name in CHANGES:
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    # The key could write when the page asked for it, and cannot any more.
    alter(page, "**/access", lambda access: access.update(allow=["read", "write"]))
    reload(page)
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator(".notice.bad")).to_contain_text("reader")
    expect(page.get_by_role("button", name="Delete now")).to_have_count(0)
    assert app.record()["state"] == before["state"]


def test_a_wrong_key_is_rejected_and_a_logout_forgets_the_key(app: AppOnAgent, tabs: Tabs) -> None:
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


def test_a_pull_shows_how_far_it_is(app: AppOnAgent, apps: Page) -> None:
    page = app.open_sheet(apps)
    progress = {"operation": "rebuild", "step": "pull", "percent": 40, "by": "ops", "since": ""}
    alter(page, f"**/v1/apps/{app.name}", lambda body: body.update(progress=progress))
    expect(page.locator(".head")).to_contain_text("pull 40 %")
    alter(page, "**/v1/apps", lambda body: body[0].update(progress=progress | {"percent": None}))
    page.get_by_role("link", name="Apps").click()
    state = page.get_by_role("row", name=app.name).locator("td[data-title=State]")
    expect(state).to_contain_text("pull")
    expect(state).not_to_contain_text("%")


def test_an_app_that_is_unhealthy_or_dead_is_reported_in_the_list_and_on_its_sheet(
    app: AppOnAgent, apps: Page, docker_client: docker.APIClient
) -> None:
    page = apps
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
    expect(page.locator(".head .state.fresh")).to_have_text("running")
    expect(notice).to_have_count(0)


def test_a_note_on_an_app_that_is_well_is_not_shown_as_a_problem(
    app: AppOnAgent, apps: Page
) -> None:
    page = apps
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
    app: AppOnAgent, apps: Page
) -> None:
    def many(events: Any) -> None:
        message = "container-with-a-long-name " * 5
        events[:] = [events[0] | {"action": "restart", "message": message} for _ in range(300)]

    page = app.open_sheet(apps)
    alter(page, f"**/v1/apps/{app.name}/events", many)
    rows = page.get_by_role("list", name="Events").get_by_role("listitem")
    more = page.get_by_role("button", name="Show 100")
    expect(more).to_have_attribute("aria-expanded", "false")
    expect(rows).to_have_count(10)
    expect(page.locator(".card", has=more)).to_contain_text("The last 10 of 300.")
    for part in ("time", "strong"):  # no word is cut in two
        assert set(rows.locator(part).evaluate_all(LINES)) == {1}
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
    expect(page).to_have_title(f"{hostname}: {app.name} - Rollcall")
    registries = page.get_by_role("navigation", name="Registries").get_by_role("link")
    expect(registries).to_have_count(0)  # this agent reports to none
    urls = ["http://127.0.0.2:7655", "https://registry.test/rollcall"]
    alter(page, "**/access", lambda access: access.update(registries=urls))
    go(page, "#/apps")
    reload(page)
    expect(page).to_have_title(f"{hostname}: Apps - Rollcall")
    expect(registries).to_have_text(["Registry 127.0.0.2:7655", "Registry registry.test"])
    found = [link.get_attribute("href") for link in registries.all()]
    assert found == [f"{url}/#/host/{hostname}" for url in urls]
    assert serious_findings(page) == []


def test_the_list_of_apps_counts_them_and_is_sorted_by_its_columns(apps: Page) -> None:
    def four(body: Any) -> None:
        texts: dict[str, Any] = {"labels": [], "description": "", "message": None}
        one = body[0] | {"state": "running", "desired": "running"} | texts
        body[:] = [
            one | {"name": "a", "http_port": 4},
            one | {"name": "b", "http_port": 3, "desired": "stopped", "state": "exited"},
            one | {"name": "c", "http_port": 20, "state": "exited"},
            one | {"name": "d", "http_port": 1, "healthy": True},
        ]

    page = apps
    alter(page, "**/v1/apps", four)
    expect(page.locator(".found")).to_have_text("4 apps, 1 with a problem, 1 stopped")
    names = page.locator("table.hosts tbody th")
    expect(names).to_have_text(["a", "b", "c", "d"])
    for column, order in (
        ("State", "cbad"),
        ("Ports", "dbac"),
        ("Ports", "cabd"),
        ("App", "abcd"),
    ):
        page.get_by_role("button", name=column).click()
        expect(names).to_have_text(list(order))
    page.set_viewport_size({"width": 360, "height": 740})
    expect(page.get_by_role("button", name="State")).to_be_visible()
    assert not overflows(page)
    assert serious_findings(page) == []


def with_gaps(app: AppOnAgent) -> Callable[[Any], None]:
    """Return what makes the usage an hour with gaps, and a value alone between two of them."""

    def change(usage: Any) -> None:
        memory = [None] * 10 + [2**20] * 20 + [None] * 5 + [2**21] + [None] * 4 + [2**21] * 20
        cpu = [None if value is None else 1.5 for value in memory[:-1]] + [None]
        usage["until"] = NOON
        usage["apps"] = [{"name": app.name, "cpu_percent": cpu, "memory_bytes": memory}]

    return change


def test_charts_show_the_value_under_the_pointer(app: AppOnAgent, apps: Page) -> None:
    page = app.open_sheet(apps)
    alter(page, "**/v1/usage", with_gaps(app))
    limit = app.record()["memory"]
    expect(page.get_by_role("img", name=f"Memory: 2.0 of {limit} MiB")).to_be_visible()
    expect(page.get_by_role("img", name="CPU: no recent value")).to_be_visible()
    area = page.locator("figure:has([aria-label^=Memory]) .u-over")
    width = area.evaluate("area => area.clientWidth")
    shown = page.locator("figure:has([aria-label^=Memory]) .plot-value")
    steps = {5: "not measured", 20: "1.0 MiB", 32: "not measured", 35: "2.0 MiB", 59: "2.0 MiB"}
    for step, value in steps.items():
        area.hover(position={"x": min(width - 1, width * step / (STEPS - 1)), "y": 40})
        minute = page.evaluate(CLOCK, NOON - 60 * (STEPS - 1 - step))
        expect(shown).to_have_text(f"{minute}  {value}")
    # The other chart shows the same minute.
    expect(page.locator("figure:has([aria-label^=CPU]) .plot-value")).to_contain_text(
        "not measured"
    )
    page.get_by_role("link", name="Apps").hover()
    expect(shown).to_be_hidden()


def test_the_chart_in_the_list_has_gaps_where_nothing_was_measured(
    app: AppOnAgent, apps: Page
) -> None:
    page = apps
    alter(page, "**/v1/usage", with_gaps(app))
    memory_limit, cpu_limit = app.record()["memory"], app.record()["cpu"]
    words = f"Last hour: CPU no recent value, Memory 2.0 of {memory_limit} MiB"
    chart = page.get_by_role("row", name=app.name).get_by_role("img", name=words)
    expect(chart).to_be_visible()
    lines = [
        [float(point.split(",")[0]) for point in str(line.get_attribute("points")).split()]
        for line in chart.locator(".good polyline").all()
    ]
    assert [len(line) for line in lines] == [20, 2, 20]
    step = 300 / (STEPS - 1)
    ends = [(line[0] / step, line[-1] / step) for line in lines]
    for (left, right), expected in zip(ends, [(10, 29), (34.5, 35.5), (40, 59)], strict=True):
        assert (left, right) == pytest.approx(expected, abs=0.1)
    # The top is the limit.
    cpu, memory = chart.locator(".accent polyline").first, chart.locator(".good polyline").last
    assert height_of(cpu) == pytest.approx(45 * 1.5 / cpu_limit, abs=0.1)
    assert height_of(memory) == pytest.approx(45 * 2 / memory_limit, abs=0.1)


def test_repeated_crashes_are_one_line_with_their_number(app: AppOnAgent, apps: Page) -> None:
    def crashes(events: Any) -> None:
        engine = events[0] | {"actor": "engine", "by": "engine", "outcome": None, "message": None}
        die, start = engine | {"action": "die"}, engine | {"action": "start", "exit_code": None}
        loop = [each for _ in range(7) for each in (die | {"exit_code": 3}, start)]
        events[:] = [events[0], *loop, die | {"exit_code": 4}, start]

    page = app.open_sheet(apps)
    alter(page, f"**/v1/apps/{app.name}/events", crashes)
    rows = page.get_by_role("list", name="Events").get_by_role("listitem")
    expect(rows.locator("strong")).to_have_text(["start", "die", "die, start", "create"])
    expect(rows.nth(2)).to_contain_text("7 times exit code 3, since")


def test_logs_are_searched_wrapped_held_and_downloaded(app: AppOnAgent, apps: Page) -> None:
    page = app.open_sheet(apps)
    log = page.get_by_role("log")
    expect(log).to_contain_text(TICK)
    page.keyboard.press("/")
    page.keyboard.insert_text("ONERROR")
    expect(log.locator("mark").first).to_have_text("onerror")
    lines = [line for line in log.inner_text().splitlines() if line]
    assert lines
    assert all("onerror" in line for line in lines)
    assert_only_text(page)
    page.get_by_label("Search the logs").fill("")
    expect(log.locator("mark")).to_have_count(0)

    page.set_viewport_size({"width": 360, "height": 740})
    page.get_by_role("button", name="Wrap").click()
    assert log.evaluate("log => log.scrollWidth > log.clientWidth")
    assert not overflows(page)
    follow = page.get_by_role("button", name="Follow")
    expect(follow).to_have_attribute("aria-pressed", "true")
    log.evaluate("log => { log.style.maxHeight = '60px'; log.scrollTop = 0; }")
    expect(follow).to_have_attribute("aria-pressed", "false")
    expect_later_tick(page, last_tick(page))
    assert log.evaluate("log => log.scrollTop") == 0
    follow.click()
    assert log.evaluate("log => log.scrollTop") > 0

    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == f"{app.name}.log"
    content = download.value.path().read_text()
    assert content.startswith("begin\n")
    assert TICK.search(content)


def test_an_agent_that_goes_away_and_comes_back_is_reported_and_its_logs_go_on(
    app: AppOnAgent, apps: Page
) -> None:
    page = app.open_sheet(apps)
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
