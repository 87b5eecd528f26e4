"""A fleet, and what is known of it."""

from dataclasses import dataclass

from tests.support.e2e.fleet.ansible import Ansible, Play
from tests.support.e2e.fleet.hosts import FleetHosts
from tests.support.e2e.fleet.operator import Operator
from tests.support.e2e.rollout_page import REGISTRY
from tests.support.e2e.systemd_host import SystemdHost
from tests.support.prometheus import Prometheus


@dataclass(frozen=True)
class Fleet:
    """Hosts by their names, on which the daemons run, and whoever looks after them.

    Attributes:
        checked: the run of the playbook in check mode, before anything was installed.
        left_by_check: what that run left on the hosts and beside the inventory.
        first: the run that installed the fleet.

    """

    machines: FleetHosts
    hosts: dict[str, SystemdHost]
    operator: Operator
    prometheus: Prometheus
    ansible: Ansible
    checked: Play
    left_by_check: list[str]
    first: Play

    def up(self, host: str) -> str | None:
        """Return what Prometheus last got of a host: 1, 0, or None if it is no target."""
        samples = self.prometheus.query(f'up{{job="rollcall", instance="{host}:7656"}}')
        return samples[0]["value"][1] if samples else None

    def heard_since(self, moment: int) -> bool:
        """Return whether the registry has seen every host since a moment."""
        nodes = self.operator.nodes()
        return nodes.keys() == self.hosts.keys() - {REGISTRY} and all(
            node["last_update"] > moment for node in nodes.values()
        )

    def versions(self) -> dict[str, str]:
        """Return the version of each agent, as the registry knows it."""
        return {name: node["kv"]["agent.version"] for name, node in self.operator.nodes().items()}

    def package_status(self, host: str) -> str:
        """Return how far the package is on a host, such as ``installed``."""
        query = "dpkg-query --show --showformat '${db:Status-Status}' rollcall"
        return self.hosts[host].run(query)

    def shown(self, host: str) -> tuple[str, str]:
        """Return the node key of a host, and the certificate that its agent shows."""
        key = self.hosts[host].run("cat /etc/rollcall/host.key").strip()
        return key, self.operator.certificate(host)

    def show_new_certificates(self, *names: str) -> bool:
        """Return whether the agents of some hosts show the certificates that were made last."""
        files = {name: self.ansible.work / name / "tls.crt" for name in names}
        return all(self.operator.certificate(name) == files[name].read_text() for name in names)

    def alerts(self) -> list[str]:
        """Return the names of the alerts that fire."""
        samples = self.prometheus.query('ALERTS{alertstate="firing"}')
        return [sample["metric"]["alertname"] for sample in samples]

    def accepted(self, host: str) -> bool:
        """Return whether a host's own status is that the registry has accepted its heartbeat."""
        return self.hosts[host].try_to("rollcall-agent status")[0] == 0
