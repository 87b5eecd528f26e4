"""`render`, and what its command gets."""

from pathlib import Path

from tests.support.cli.command import Rollcall
from tests.support.registry.in_process import OPS, InProcessRegistry


async def test_the_command_after_a_change_does_not_get_the_key(
    rollcall: Rollcall, registry: InProcessRegistry, tmp_path: Path
) -> None:
    await registry.post("web-1", [])
    template, seen = tmp_path / "hosts.j2", tmp_path / "seen"
    template.write_text("{% for node in nodes %}{{ node.hostname }}{% endfor %}")
    rollcall.environment |= {"ROLLCALL_KEY": OPS, "OF_THE_USER": "kept"}
    command = f"env > {seen}"

    done = await rollcall(
        *("render", str(template), str(tmp_path / "hosts"), "--on-change", command, "--shell")
    )

    assert done.status == 0, done.err
    assert (tmp_path / "hosts").read_text() == "web-1"
    assert "OF_THE_USER=kept" in seen.read_text()
    assert OPS not in seen.read_text()
