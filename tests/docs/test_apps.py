"""The page about apps: its commands, against a real engine, and the rules that it gives."""

import re
from pathlib import Path

import pytest

from agent.api.data import MAX_TRANSFERS, UPLOAD_IDLE_SECONDS
from agent.apps.admission.fields import MAX_PATH_LENGTH
from agent.apps.archives.names import MOST_LINKS
from agent.apps.containers.volumes import MAX_VOLUMES
from agent.state.history import MOST_REVISIONS
from tests.support.e2e.page_runs import MakeRun
from tests.support.pages import Page


@pytest.mark.real("curl")
@pytest.mark.page("docs/apps.md")
def test_each_command_works_and_answers_as_shown(page: Page, make_run: MakeRun) -> None:
    make_run.follow(page)


@pytest.mark.page("docs/apps.md")
def test_the_limits_are_those_of_the_agent(page: Page) -> None:
    assert f"at most {MAX_PATH_LENGTH}\ncharacters" in page.text
    assert f"has at most {MAX_VOLUMES} volumes" in page.text
    assert f"At most {MAX_TRANSFERS} tars" in page.text
    assert f"The last {MOST_REVISIONS} are kept" in page.text
    assert f"more than {MOST_LINKS:,} symbolic links" in page.text
    assert f"no byte came for {UPLOAD_IDLE_SECONDS:g} seconds" in page.text


FOLDER = Path(__file__).parents[1]
# The test of each row of the table of faults.
TESTS = {
    "an app ends, again and again": (
        "agent/apps/upkeep/test_desired.py",
        "test_an_app_that_crashes_at_each_start_is_restarted_by_the_engine_alone",
    ),
    "`docker kill`": (
        "agent/apps/upkeep/test_desired.py",
        "test_a_container_that_is_killed_by_hand_runs_again",
    ),
    "`docker stop`": (
        "agent/apps/upkeep/test_desired.py",
        "test_a_stop_by_hand_is_heeded_by_each_agent_until_the_engine_restarts",
    ),
    "`docker start` of an app that was stopped so": (
        "agent/apps/upkeep/test_keeper.py",
        "test_an_app_that_somebody_started_again_is_kept_again",
    ),
    "`docker rm -f`": (
        "agent/apps/upkeep/test_watcher.py",
        "test_a_removed_container_is_missing_until_a_start_makes_another",
    ),
    "an app ends while the engine's disk is full": (
        "agent/apps/upkeep/engine/test_stale_list.py",
        "test_an_app_that_dies_while_the_engines_disk_is_full_is_shown_so_and_started_again",
    ),
    "the engine starts a stopped app at its own start, since its disk had no room for the restart"
    " policy": (
        "agent/apps/upkeep/engine/test_stale_list.py",
        "test_an_app_stopped_while_the_engines_disk_is_full_is_down_after_its_next_start",
    ),
    "an unhealthy app is to be restarted while the disk is too full": (
        "agent/apps/operations/test_room.py",
        "test_an_unhealthy_app_goes_on_while_there_is_no_room_for_its_restart",
    ),
    "`docker network disconnect`": (
        "agent/apps/containers/test_lost_network.py",
        "test_a_start_connects_an_app_again_that_was_disconnected",
    ),
    "`docker network connect` to another network": (
        "agent/apps/containers/test_lost_network.py",
        "test_an_app_in_another_network_instead_is_connected_to_its_own",
    ),
    "the network of a container is removed": (
        "agent/apps/containers/test_lost_network.py",
        "test_an_app_whose_network_was_removed_is_to_be_rebuilt",
    ),
    "the rules of the engine's firewall are flushed": (
        "agent/apps/operations/test_before_stop.py",
        "test_without_rules_of_its_firewall_the_engine_is_asked_to_stop_no_app",
    ),
    "`docker pause`": (
        "agent/apps/upkeep/test_monitor.py",
        "test_nothing_is_checked_while_an_app_is_paused",
    ),
    "the creation in the background fails": (
        "agent/apps/operations/test_create.py",
        "test_a_creation_in_the_background_that_fails_is_kept_as_failed_with_the_reason",
    ),
    "a port is taken when the engine starts the app": (
        "agent/apps/upkeep/test_desired.py",
        "test_an_app_whose_port_was_taken_for_a_while_says_so_and_runs_when_it_is_free",
    ),
    "an update or rebuild whose container ends within `apps.settle_seconds`": (
        "agent/apps/operations/test_readiness.py",
        "test_an_update_to_an_image_that_dies_after_two_seconds_leaves_the_old_app_and_its_data",
    ),
    "an update or rebuild whose container does not get healthy": (
        "agent/apps/test_health.py",
        "test_an_update_without_its_page_goes_back_and_one_with_it_is_healthy_at_once",
    ),
    "a rollback whose container does not stay up": (
        "agent/apps/operations/test_rollback.py",
        "test_a_rollback_that_does_not_stay_up_goes_back_by_itself",
    ),
    "the image of a revision is gone from the host": (
        "agent/apps/operations/test_rollback.py",
        "test_an_image_that_made_room_on_a_full_disk_is_pulled_by_its_digest",
    ),
    "an image that was built here is gone from the host": (
        "agent/apps/operations/test_rollback.py",
        "test_a_local_image_that_is_gone_is_rejected_and_the_app_runs_on",
    ),
    "the disk is too full": (
        "agent/apps/images/test_images_on_a_full_disk.py",
        "test_while_the_disk_is_full_images_of_old_revisions_go_before_a_change_is_rejected",
    ),
    "the agent is killed while an updated app settles": (
        "e2e/agent/kills/test_updates.py",
        "test_an_update_with_a_fault_at_any_call_is_done_or_undone",
    ),
    "the check in the record fails `retries` times": (
        "agent/apps/test_health.py",
        "test_an_app_without_its_page_is_unhealthy_and_restarted_until_it_has_it_again",
    ),
    "the `HEALTHCHECK` of an image fails": (
        "agent/apps/operations/test_readiness.py",
        "test_the_health_of_an_image_is_shown_everywhere_and_gates_an_update",
    ),
    "the engine restarts": (
        "agent/apps/upkeep/engine/test_engine_outage.py",
        "test_an_engine_that_stops_is_503_and_its_apps_run_again_when_it_is_back",
    ),
    "the engine is killed": (
        "agent/apps/upkeep/engine/test_engine_crash.py",
        "test_after_a_crash_of_the_engine_what_should_run_does_and_what_was_stopped_does_not",
    ),
    "the host reboots": (
        "e2e/agent/test_reboot.py",
        "test_after_a_crash_of_the_host_what_should_run_does_and_what_was_stopped_does_not",
    ),
    "the host shuts down in order, however long that takes": (
        "e2e/agent/test_reboot.py",
        "test_an_orderly_shutdown_of_agent_and_engine_at_once_is_nobodys_wish",
    ),
    "the agent is killed": (
        "e2e/agent/test_kills.py",
        "test_a_kill_at_any_moment_leaves_one_container_or_none_and_the_data",
    ),
    "the password is lost with the container": (
        "agent/apps/operations/passwords/test_password.py",
        "test_a_stopped_app_gets_the_password_when_it_starts",
    ),
    "the engine refuses to set a password": (
        "agent/apps/operations/passwords/test_rejected_exec.py",
        "test_a_password_that_the_engine_rejects_is_pending_until_the_engine_sets_it",
    ),
    "an update to an image in which the password cannot be set": (
        "agent/apps/operations/passwords/test_password.py",
        "test_an_update_to_an_image_that_cannot_take_the_password_is_undone",
    ),
    "`agent.db` is lost": (
        "agent/apps/upkeep/test_sweeper.py",
        "test_the_password_is_read_back_from_the_container",
    ),
    "the server of the image cannot be reached": (
        "agent/apps/images/test_images.py",
        "test_a_rebuild_whose_server_is_down_is_502_and_the_app_stays_as_it_was",
    ),
    "the engine does not answer": (
        "agent/apps/upkeep/engine/test_engine_outage.py",
        "test_a_frozen_engine_is_503_in_bounded_time_and_all_recovers_after_it",
    ),
}


@pytest.mark.page("docs/apps.md")
def test_each_row_of_the_table_of_faults_has_its_test(page: Page) -> None:
    table = page.text.partition("## What happens when")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| .+ \| .+ \|$", table, re.MULTILINE)
    assert rows[0] == "event"

    assert sorted(rows[2:]) == sorted(TESTS)
    for file, test in TESTS.values():
        assert f"def {test}(" in (FOLDER / file).read_text("utf-8")
