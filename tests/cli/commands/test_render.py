"""`render`, and what its command gets."""

from pathlib import Path

from tests.support.cli.command import Rollcall
from tests.support.registry.in_process import OPS, InProcessRegistry, in_process_registry


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


async def test_templates_and_wide_tables_have_the_address_of_each_node_also_after_a_move(
    rollcall: Rollcall, tmp_path: Path
) -> None:
    async with in_process_registry(trusted_proxies=["127.0.0.1"]) as registry:
        rollcall.use(
            registry="http://{}:{}".format(*registry.address),
            key_file=str(tmp_path / "ops.key"),
            agent_key="same",
        )
        template, out = tmp_path / "hosts.j2", tmp_path / "hosts"
        template.write_text("{% for node in nodes %}{{ node.address }}{% endfor %}")
        for address in ("192.0.2.1", "2001:db8::2"):
            await registry.post("web-1", headers={"X-Forwarded-For": address})
            done = await rollcall("render", str(template), str(out))
            assert (done.status, out.read_text()) == (0, address), done.err
            for hosts in ((), ("web-1",)):
                wide = await rollcall("nodes", *hosts, "-o", "wide")
                assert wide.rows()[0][wide.out.split().index("ADDRESS")] == address
