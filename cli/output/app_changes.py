"""What people are told of a change of an app: what it would do, what became of it, what runs."""

from collections.abc import Collection, Mapping
from typing import Any

from cli.output.text import first_line


def outcome(app: str, answer: Mapping[str, Any]) -> str:
    """Return what became of a change, in a line, with the names in ``changed`` if it has them."""
    if "state" not in answer:
        return f"{app}: {answer.get('message')}"
    changed, message = answer.get("changed"), answer.get("message")
    parts = [] if changed is None else [f"changed {', '.join(changed)}"]
    if changed == []:
        parts = ["nothing changed"]
    parts += [answer["state"], f"http port {answer['http_port']}", f"ssh port {answer['ssh_port']}"]
    return f"{app}: {', '.join(parts)}" + (f"; {message}" if message else "")


def changed_by(
    fields: Collection[str], before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[str]:
    """Return the names of the given fields that an update has changed, and `image_id`."""
    names = dict.fromkeys("env" if each in ("env_set", "env_unset") else each for each in fields)
    return [each for each in (*names, "image_id") if before.get(each) != after.get(each)]


def plan_lines(app: str, plan: Mapping[str, Any]) -> list[str]:
    """Return what a dry run tells, in lines."""
    lines = [
        f"{app}: nothing was changed; the change would",
        *_fields(plan),
        f"  {_container(plan)}",
        f"  {_interruption(plan)}",
    ]
    return [*lines, f"  note: {plan['message']}"] if plan["message"] else lines


def _fields(plan: Mapping[str, Any]) -> list[str]:
    """Return which fields of an app that is there would change, as a line."""
    changed = plan.get("changed")
    if changed is None:
        return []
    return [f"  change {', '.join(changed)}" if changed else "  change no field"]


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
