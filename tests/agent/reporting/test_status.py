from pathlib import Path

from agent.reporting.heartbeat import HostedApp, HostedApps
from agent.reporting.status import AgentStatus, RegistryStatus, StatusWriter, read_status

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


def write(folder: Path) -> None:
    StatusWriter(folder, STATUS, hosting=lambda: STATUS.hosting).write()


def test_the_file_returns_what_was_written(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    write(tmp_path)
    assert read_status(tmp_path) == STATUS
    (tmp_path / "status.json").write_text('{"agent')
    assert read_status(tmp_path) is None


def test_a_file_that_cannot_be_written_is_ignored(tmp_path: Path) -> None:
    write(tmp_path / "missing")
