"""Changes of an app by the buttons of the agent's page, each after its confirmation."""

import docker
import pytest
from playwright.sync_api import Locator, Page, Request, Route, expect

from tests.support.browser.agent_page import AppOnAgent
from tests.support.browser.tabs import Tabs, alter, go

pytest_plugins = ["tests.support.browser.fixtures"]
pytestmark = pytest.mark.real("chromium-headless-shell")


def carry_out(page: Page, name: str, *, then: str | None = None) -> None:
    """Press the button of a change, and the one that confirms it.

    Afterwards ``then`` has the focus, or the button again.
    """
    page.get_by_role("button", name=name, exact=True).click()
    page.get_by_role("button", name=f"{name} now").press("Enter")
    expect(page.get_by_text(f"{name} is done.")).to_be_visible()
    expect(page.get_by_role("button", name=then or name, exact=True)).to_be_focused()


def offered(page: Page) -> Locator:
    """Return the buttons of the changes that are offered."""
    return page.locator(".buttons > button")


def expect_starts(page: Page, count: int) -> None:
    """Wait until the log holds so many starts of the app's command."""
    text = "count => document.querySelector('.log').textContent.split('begin').length - 1 === count"
    page.wait_for_function(text, arg=count)


def only_newest(history: list[object]) -> None:
    """Leave only the newest revision."""
    del history[1:]


def is_of_log(request: Request) -> bool:
    """Return whether a request is for the log of an app."""
    return "/logs?" in request.url


def test_nothing_changes_before_the_confirmation_nor_by_enter_that_is_still_held(
    app: AppOnAgent, apps: Page
) -> None:
    page = app.open_sheet(apps)
    before = app.record()
    for name in ("Rebuild", "Delete", "Stop"):
        button = page.get_by_role("button", name=name, exact=True)
        button.click()
        expect(page.get_by_role("heading", name=f"{name} {app.name}?")).to_be_visible()
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("button", name=f"{name} now")).to_have_count(0)
        expect(button).to_be_focused()
    after = app.record()
    assert (after["state"], after["started_at"]) == ("running", before["started_at"])

    page.keyboard.down("Enter")
    confirm = page.get_by_role("button", name="Stop now")
    expect(confirm).to_be_focused()
    page.keyboard.down("Enter")  # the key repeats
    page.keyboard.up("Enter")
    expect(page.get_by_text("Stop is under way")).to_have_count(0)
    expect(confirm).to_be_focused()

    page.keyboard.down("Enter")
    page.keyboard.down("Enter")  # it repeats on the button that has the focus again
    page.keyboard.up("Enter")
    expect(page.get_by_text("Stop is done.")).to_be_visible()
    expect(page.get_by_role("button", name="Start", exact=True)).to_be_focused()


def test_logs_go_on_after_a_stop_and_a_start_and_a_restart_by_the_engine(
    app: AppOnAgent, apps: Page, docker_client: docker.APIClient
) -> None:
    for change in ("start", "rebuild"):
        assert app.agent.ask("PUT", f"/v1/apps/{app.name}/{change}").status_code == 200
    page = app.open_sheet(apps)
    expect_starts(page, 1)
    shown = page.locator(".head .state").first
    carry_out(page, "Stop", then="Start")
    expect(shown).to_have_text("exited")
    expect(page.locator(".notice.bad")).to_have_count(0)  # it was stopped on purpose
    carry_out(page, "Start", then="Stop")
    expect(shown).to_have_text("running")
    expect_starts(page, 2)
    docker_client.restart(app.name, timeout=0)
    expect_starts(page, 3)


def test_a_log_that_cannot_be_read_again_stays_with_the_reason_once(
    app: AppOnAgent, apps: Page, docker_client: docker.APIClient
) -> None:
    page = app.open_sheet(apps)
    log = page.get_by_role("log")
    expect(log).to_contain_text("begin")
    before = log.inner_text()
    page.route("**/logs?*", lambda route: route.abort())
    address = app.agent.base_url.rpartition("/")[2]
    note = (
        f"[The log is interrupted. {address} does not answer: it, or the network to it, is down.]"
    )

    docker_client.restart(app.name, timeout=0)

    expect(log).to_contain_text(note)
    for _ in range(2):
        with page.expect_event("requestfailed", is_of_log):
            pass  # the page tries again
    shown = log.inner_text()
    assert shown.startswith(before.rstrip())
    assert shown.count("[The log is interrupted.") == 1


def test_a_rollback_a_restart_and_a_rebuild_are_done(app: AppOnAgent, apps: Page) -> None:
    change = {"description": "another"}
    answer = app.agent.ask("PUT", f"/v1/apps/{app.name}", json=change)
    assert answer.status_code == 200, answer.text
    page = app.open_sheet(apps)
    expect(page.locator("main dl")).to_contain_text("another")
    carry_out(page, "Rollback")
    expect(page.locator("main dl")).not_to_contain_text("another")
    expect(page.get_by_role("list", name="History")).to_contain_text("rollback")
    carry_out(page, "Restart")
    expect(page.get_by_role("list", name="Events")).to_contain_text("restart")
    carry_out(page, "Rebuild")
    expect(page.get_by_role("list", name="Events")).to_contain_text("rebuild")
    expect_starts(page, 1)  # the log of the new container


def test_a_rollback_brings_back_what_its_plan_has_shown(app: AppOnAgent, apps: Page) -> None:
    for text in ("second", "third"):
        answer = app.agent.ask("PUT", f"/v1/apps/{app.name}", json={"description": text})
        assert answer.status_code == 200, answer.text
    page = app.open_sheet(apps)
    expect(page.locator("main dl")).to_contain_text("third")
    page.get_by_role("button", name="Rollback", exact=True).click()
    confirm = page.get_by_role("button", name="Rollback now")
    expect(confirm).to_be_visible()
    elsewhere = app.agent.ask("PUT", f"/v1/apps/{app.name}/rollback")
    assert elsewhere.json()["description"] == "second"

    confirm.press("Enter")

    expect(page.get_by_text("is under way")).not_to_be_visible()
    record = app.agent.ask("GET", f"/v1/apps/{app.name}").json()
    assert record["description"] == "second"


def test_a_sheet_that_is_left_while_a_change_is_under_way_asks_nothing_more(
    app: AppOnAgent, tabs: Tabs
) -> None:
    page = app.sheet(tabs)
    expect_starts(page, 1)
    held: list[Route] = []
    asked: list[str] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/restart", hold)
    page.on("request", lambda request: asked.append(request.url))

    def start_and_leave(leave: Locator) -> None:
        page.get_by_role("button", name="Restart", exact=True).click()
        page.get_by_role("button", name="Restart now").click()
        expect(page.get_by_text("Restart is under way")).to_be_visible()
        asked.clear()
        leave.click()
        expect(page.get_by_role("heading", name=app.name)).to_have_count(0)

    start_and_leave(page.get_by_role("link", name="Apps"))
    with (
        page.expect_response("**/v1/usage"),
        page.expect_response("**/v1/apps"),
        page.expect_response("**/restart"),
    ):
        held.pop().continue_()
    page.evaluate("() => new Promise(requestAnimationFrame)")
    assert [path for path in asked if "/logs" in path] == []

    page.get_by_role("link", name=app.name).click()
    start_and_leave(page.get_by_role("button", name="Log out"))
    with page.expect_response("**/restart"):
        held.pop().continue_()
    page.evaluate("() => new Promise(requestAnimationFrame)")
    assert [path for path in asked if "/logs" in path] == []


def test_a_sheet_offers_only_what_can_be_done_and_sets_delete_apart(
    app: AppOnAgent, apps: Page
) -> None:
    page = app.open_sheet(apps)
    expect(offered(page)).to_have_text(["Stop", "Restart", "Rebuild", "Rollback", "Delete"])
    delete, rollback = offered(page).last.bounding_box(), offered(page).nth(3).bounding_box()
    assert delete is not None
    assert rollback is not None
    assert delete["x"] - rollback["x"] - rollback["width"] > rollback["width"]
    colours = [
        button.evaluate("button => getComputedStyle(button).color")
        for button in offered(page).all()
    ]
    assert colours.count(colours[-1]) == 1
    path = f"**/v1/apps/{app.name}"
    stopped = {"state": "exited", "desired": "stopped"}
    alter(page, path, lambda body: body.update(stopped))
    expect(offered(page)).to_have_text(["Start", "Rebuild", "Rollback", "Delete"])
    alter(page, path, lambda body: body.update(state="exited"))
    expect(offered(page)).to_have_text(["Start", "Stop", "Rebuild", "Rollback", "Delete"])
    progress = {"operation": "rebuild", "step": "pull", "percent": 40, "by": "ops", "since": ""}
    alter(page, path, lambda body: body.update(progress=progress))
    expect(offered(page)).to_have_text(["Stop", "Delete"])
    page.unroute(path)
    alter(page, f"{path}/history", only_newest)
    expect(offered(page)).to_have_text(["Stop", "Restart", "Rebuild", "Delete"])
    go(page, "#/app/unknown")
    expect(page.locator(".notice")).to_contain_text("unknown")
    expect(offered(page)).to_have_count(0)


def test_a_change_without_an_answer_is_explained(app: AppOnAgent, apps: Page) -> None:
    page = app.open_sheet(apps)
    address = app.agent.base_url.rpartition("/")[2]
    down = f"{address} does not answer: it, or the network to it, is down."
    page.route("**/restart", lambda route: route.abort())
    page.route("**/rebuild?*", lambda route: route.abort())
    page.get_by_role("button", name="Rebuild", exact=True).click()
    expect(page.locator(".notice.bad")).to_have_text(down)
    page.get_by_role("button", name="Restart", exact=True).click()
    page.get_by_role("button", name="Restart now").click()
    expect(page.locator(".notice.bad")).to_have_text(
        f"{down} What was begun is finished or undone; the page shows which when the agent answers."
    )


def test_a_deleted_app_is_gone(app: AppOnAgent, apps: Page) -> None:
    page = app.open_sheet(apps)
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("The app and its data would be deleted.")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Delete now")).to_have_count(0)
    expect(page.get_by_role("button", name="Delete", exact=True)).to_be_focused()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Delete now").click()
    expect(page.locator(".notice").last).to_contain_text(app.name)
    assert app.agent.ask("GET", f"/v1/apps/{app.name}").status_code == 404
    page.get_by_role("link", name="Apps").click()
    expect(page.get_by_role("heading", name="There is no app on this host.")).to_be_visible()
    hostname = app.agent.ask("GET", "/access").json()["hostname"]
    create = f"rollcall app create {hostname}/NAME --image IMAGE"
    expect(page.locator(".command code")).to_have_text(create)
