"""A machine that was cloned with its state is told from an agent that was restarted."""

import pytest

from tests.support.registry.in_process import (
    InProcessRegistry,
    RegistryResponse,
    in_process_registry,
)


async def report(
    registry: InProcessRegistry, instance: str | None, *labels: str, **more: str
) -> RegistryResponse:
    kv = {"agent.id": "machine", **more}
    return await registry.post(
        "web-1", labels, kv | ({"agent.instance": instance} if instance else {})
    )


@pytest.mark.slow
async def test_an_instance_that_was_replaced_and_posts_again_is_409_and_counted(
    registry: InProcessRegistry,
) -> None:
    await report(registry, "first")
    registry.clock.pass_seconds(30)
    assert (await report(registry, "second", "a")).status == 200
    registry.clock.pass_seconds(12)

    for label in ("", "b"):
        answer = await report(registry, "first", *filter(None, [label]))
        assert answer.status == 409
        for word in ("web-1", "machine", "127.0.0.1", "12 s ago", "/etc/machine-id"):
            assert word in answer.json()["message"]

    assert (await report(registry, "second", "c")).status == 200
    assert (await registry.get("/nodes/web-1"))[0]["labels"] == ["c"]
    assert (await registry.counts())["clone"] == 2


async def test_both_addresses_are_told() -> None:
    async with in_process_registry() as registry:
        nodes = registry.components.nodes
        await report(registry, "first")
        await report(registry, "second")
        (entry,) = registry.components.context.directory.fresh()
        entry.address = "192.0.2.7"

        message = (await report(registry, "first")).json()["message"]

        assert "posts from 127.0.0.1" in message
        assert "last seen 0 s ago from 192.0.2.7" in message
        assert nodes.unavailable_reason is None


@pytest.mark.slow
async def test_a_restart_is_never_refused(registry: InProcessRegistry) -> None:
    for number in range(30):
        for _ in range(2):
            assert (await report(registry, f"instance-{number}")).status == 200
        registry.clock.pass_seconds(30)
    assert (await registry.counts())["clone"] == 0


@pytest.mark.slow
async def test_of_two_clones_that_restart_in_turn_each_start_is_told(
    registry: InProcessRegistry,
) -> None:
    for number in range(6):
        assert (await report(registry, f"instance-{number}")).status == 200
        for earlier in range(number):
            assert (await report(registry, f"instance-{earlier}")).status == 409


@pytest.mark.slow
async def test_once_the_holder_is_stale_the_other_one_takes_over(
    registry: InProcessRegistry,
) -> None:
    await report(registry, "first")
    await report(registry, "second")
    assert (await report(registry, "first")).status == 409
    registry.clock.pass_seconds(90)

    assert (await report(registry, "first")).status == 200
    assert (await report(registry, "second")).status == 409


async def test_a_host_that_was_deleted_begins_anew(registry: InProcessRegistry) -> None:
    await report(registry, "first")
    await report(registry, "second")
    await registry.ask("DELETE", "/nodes/web-1")

    assert (await report(registry, "first")).status == 200


@pytest.mark.slow
async def test_a_change_that_was_not_stored_replaces_nothing(registry: InProcessRegistry) -> None:
    await report(registry, "first")
    registry.store.failure = OSError("no")
    assert (await report(registry, "second")).status == 500
    registry.store.failure = None

    assert (await report(registry, "first", "a")).status == 200


async def test_agents_without_an_instance_go_on(registry: InProcessRegistry) -> None:
    await report(registry, None)
    await report(registry, "first")

    assert (await report(registry, None, "edited")).status == 200
    assert (await report(registry, "first")).status == 200


@pytest.mark.slow
async def test_no_text_can_pass_for_an_identity_and_none_hides_it(
    registry: InProcessRegistry,
) -> None:
    labels = [',"agent.id":"false",', '"kv":{"agent.id":"false"', '{"agent.instance":"x"']
    odd = {',"agent.id': "false", '{"agent.id': "false", "a": ',"agent.id":"false"'}
    for identity in ('quote"d', "back\\slash", "grüße 😀", "", "a" * 300):
        await registry.ask("DELETE", "/nodes/web-1")
        kv = odd | {"agent.id": identity, "z": '{"agent.id":"false"'}
        assert (await registry.post("web-1", labels, kv)).status == 200

        assert (await registry.post("web-1", [*labels, "b"], kv)).status == 200
        other = await registry.post("web-1", labels, kv | {"agent.id": "false"})
        assert other.status == 409
        message = other.json()["message"]
        assert ascii(identity[:8]) in message
        assert len(identity) <= 8 or identity[:9] not in message


@pytest.mark.parametrize("identity", ['a"b', "back\\", '","agent.id":"c', "grüße"])
async def test_an_identity_may_hold_any_characters(
    registry: InProcessRegistry, identity: str
) -> None:
    other = {'"agent.id': "other", '"': "other", 'x"agent.id': '"agent.id":"other'}
    assert (await registry.post("web-1", [], other)).status == 200

    assert (await registry.post("web-1", [], other | {"agent.id": identity})).status == 200
    assert (await registry.post("web-1", ["a"], other | {"agent.id": identity})).status == 200
    answer = await registry.post("web-1", [], other | {"agent.id": "other"})

    assert answer.status == 409
    assert ascii(identity[:8]) in answer.json()["message"]


async def test_no_conflict_shows_more_than_eight_characters_of_an_identity(
    registry: InProcessRegistry,
) -> None:
    held, other = "0123456789abcdef" * 2, "fedcba9876543210" * 2
    for instance in ("one", "two"):
        kv = {"agent.id": held, "agent.instance": instance}
        assert (await registry.post("web-1", kv=kv)).status == 200

    for answer in (
        await registry.post("web-1", kv={"agent.id": other}),
        await registry.post("web-1", kv={"agent.id": held, "agent.instance": "one"}),
        await registry.ask("DELETE", f"/nodes/web-1?agent_id={other}"),
    ):
        assert answer.status == 409
        assert "'01234567'..." in answer.json()["message"]
        assert held[:9] not in answer.json()["message"]
        assert other[:9] not in answer.json()["message"]
