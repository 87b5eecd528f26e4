"""What people are told of a change of an app: what it would do, what became of it, what runs."""

from collections.abc import Mapping
from typing import Any

from cli.output.text import first_line


def outcome(app: str, answer: Mapping[str, Any]) -> str:
    """Return what became of a change, in a line."""
    if "state" not in answer:
        return f"{app}: {answer.get('message')}"
    ports = f"http port {answer['http_port']}, ssh port {answer['ssh_port']}"
    message = answer.get("message")
    return f"{app}: {answer['state']}, {ports}" + (f"; {message}" if message else "")


def plan_lines(app: str, plan: Mapping[str, Any]) -> list[str]:
    """Return what a dry run tells, in lines."""
    lines = [
        f"{app}: nothing was changed; the change would",
        f"  {_container(plan)}",
        f"  {_interruption(plan)}",
    ]
    return [*lines, f"  note: {plan['message']}"] if plan["message"] else lines


def _container(plan: Mapping[str, Any]) -> str:
    """Return what a change would do with the container of its app."""
    if plan["app"] is None:
        return "remove the container"
    if plan["replaces_container"]:
        return "replace the container"
    return "make a container" if plan["app"].get("container_id") is None else "keep the container"


def _interruption(plan: Mapping[str, Any]) -> str:
    seconds = plan["seconds_without_service"]
    if seconds is not None:
        return f"interrupt it for at most {seconds:g} s"
    return "leave the app down" if plan["app"] is None else "leave the app down until it is started"


def failure(app: str, error: str, record: Mapping[str, Any]) -> str:
    """Return the error of a change with what runs afterwards; lines of the app stay at the end."""
    reason = first_line(error) or ""
    return f"{reason}; now {_now(app, record)}{error[len(reason) :]}"


def _now(app: str, record: Mapping[str, Any]) -> str:
    revision = record.get("revision")
    version = record["image"] if revision is None else f"{record['image']}, revision {revision}"
    if record["state"] == "running":
        return f"{app} runs ({version})"
    return f"{app} is {record['state']} ({version})"
