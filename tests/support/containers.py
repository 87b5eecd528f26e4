"""Commands in containers."""

import secrets

import docker

from dev.waiting import until

BEGINNING, END = "(beginning of output)", "(end of output)"
COMMAND_SECONDS = 60


def execute(client: docker.APIClient, container_id: str, line: str) -> tuple[int, str]:
    """Run a line of shell once; return its exit status and what it wrote.

    A busy engine may lose the beginning or the end of the output of a command that ends at once, so
    the output is kept in a file until it was read whole.
    """
    file = f"/output-{secrets.token_hex(8)}"
    show = f"printf '{BEGINNING}'; cat {file}; printf '{END}'"
    keep = f'sh -euc "$0" >{file} 2>&1; status=$?; {show}; exit $status'
    status, output = _execute(client, container_id, keep, line)
    while not (output.startswith(BEGINNING) and output.endswith(END)):
        _, output = _execute(client, container_id, show)
    return status, output.removeprefix(BEGINNING).removesuffix(END)


def _execute(client: docker.APIClient, container_id: str, *script: str) -> tuple[int, str]:
    made = client.exec_create(container_id, ["/bin/sh", "-c", *script])
    output: bytes = client.exec_start(made["Id"])

    def ended() -> bool:  # the engine may end the output before it knows of the end
        return client.exec_inspect(made["Id"])["ExitCode"] is not None

    until(ended, f"the end of {script}", within=COMMAND_SECONDS)
    return client.exec_inspect(made["Id"])["ExitCode"], output.decode()
