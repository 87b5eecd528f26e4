"""The page about integrations: its commands, with a registry, in their order."""

from pathlib import Path

import pytest

from cli.render.file import RenderError, TemplateNode
from cli.render.template import NodeTemplate
from tests.support.cli.home import home
from tests.support.daemons import FreePort
from tests.support.e2e.page_runs import environment
from tests.support.pages import CURL, Page, run

# What must hold after each block of commands.
CHECKS = {
    "A receiver": [
        """
until command curl -sS -o healthz http://127.0.0.1:7655/healthz; do sleep 0.1; done
until grep -q '^resync started$' changes.txt; do sleep 0.1; done
""",
        "until grep -q '^added web-1.example.com$' changes.txt; do sleep 0.1; done",
    ],
    "Files": ['[ "$(cat upstreams.conf)" = "$UPSTREAMS" ]'],
    "Keeping a file": [
        "",
        "until grep -q 'server web-2.example.com:8080;' in-use.conf; do sleep 0.1; done",
    ],
}


@pytest.mark.page("docs/integrations.md")
def test_the_template_of_the_page_writes_no_upstream_without_servers(
    page: Page, tmp_path: Path
) -> None:
    (commands,) = (block.text for block in page.blocks("sh") if block.heading == "Files")
    text = commands.partition("cat > upstreams.j2 <<'END'\n")[2].partition("END\n")[0]
    (tmp_path / "upstreams.j2").write_text(text)
    template = NodeTemplate(tmp_path / "upstreams.j2")
    fresh, stale = (
        TemplateNode(
            hostname=f"{name}.example.com",
            address="192.0.2.1",
            labels=("service:web",),
            kv={},
            stale=is_stale,
        )
        for name, is_stale in (("web-1", False), ("web-2", True))
    )

    written = template.render([fresh, stale])
    assert "server web-1.example.com:80;" in written
    assert "web-2" not in written
    with pytest.raises(RenderError, match="'no_node_is_fresh' is undefined"):
        template.render([stale])


@pytest.mark.real("bash", "curl", "openssl")
@pytest.mark.page("docs/integrations.md")
def test_each_command_works_in_its_order(page: Page, tmp_path: Path, free_port: FreePort) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    upstreams = next(block.text for block in page.blocks("text") if block.heading == "Files")
    script = page.script(checks=CHECKS, before=CURL)
    script = script.replace("7655", str(free_port())).replace("7700", str(free_port()))

    found = environment(UPSTREAMS=upstreams.rstrip(), **home(folder))
    run(script, folder=folder, environment=found)
