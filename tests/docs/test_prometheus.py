"""The page about Prometheus: its commands, with a real Prometheus on its configuration."""

import pytest

from tests.support.e2e.page_runs import MakeRun
from tests.support.pages import Page

# The page's commands are for the top of the repository.
TOP_FOLDER = 'ln -s "$TOP/deploy" .\n'
# The cases of the rules are tested in tests/deploy/monitoring/test_rules.py.
PROMTOOL = """
promtool() { if [ "$1" = test ]; then ls "${@:3}"; else command promtool "$@"; fi; }
"""
# The agent and the registry are scraped, relabelled, and watched by the rules; the made-up host is
# a target that does not answer.
SCRAPED = """
until_query 'up{job="rollcall", host!=""} == 1'
until_query 'up{job="rollcall-registry"} == 1'
until_query 'up{job="web", tier="front", a_b="c", host="web-1.example.com", rack="r12"} == 0'
until_query 'up{job="web", instance="127.0.0.1:8080"} == 0'
until_query 'rollcall_agent_registry_up == 1'
until_query 'ALERTS{alertname="RollcallTargetLabelsAltered", reason="sanitized", \
alertstate="pending"}'
until_query 'absent(ALERTS{alertname!="RollcallTargetLabelsAltered"})'
"""
# Alertmanager is not here, but its file is of these rules.
NAMED = """
for alert in $(grep -o 'Rollcall[A-Za-z]*' alertmanager.yml)
do grep -q "alert: $alert$" deploy/monitoring/rules.yml
done
"""


@pytest.mark.real("curl", "prometheus", "promtool")
@pytest.mark.page("docs/prometheus.md")
def test_each_command_works_and_prometheus_scrapes_with_its_configuration(
    page: Page, make_run: MakeRun
) -> None:
    make_run.follow(page, before=TOP_FOLDER + PROMTOOL, checks={"Alerts": [SCRAPED, NAMED, ""]})
