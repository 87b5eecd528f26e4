from pathlib import Path

from agent.reporting.heartbeat import HostedApp, HostedApps
from agent.reporting.status import AgentStatus, RegistryStatus, StatusFile

STATUS = AgentStatus(
    agent_id="id-1",
    agent_instance="instance-1",
    started_at=1_000_000.0,
    hosting=HostedApps(
        apps=(HostedApp(name="shop", http_port=20001, labels=("a:b",), running=True),),
        docker_state="running",
        docker_version="20.10.24",
    ),
    registries=[RegistryStatus(url="https://registry:7655", state="wrong_key", reason="401")],
)


def test_the_file_returns_what_was_written(tmp_path: Path) -> None:
    file = StatusFile(directory=tmp_path)

    assert file.read() is None
    file.write(STATUS)
    assert file.read() == STATUS
    (tmp_path / "status.json").write_text('{"agent')
    assert file.read() is None


def test_a_file_that_cannot_be_written_is_ignored(tmp_path: Path) -> None:
    StatusFile(directory=tmp_path / "missing").write(STATUS)
