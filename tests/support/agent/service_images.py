"""Images of real services, made as the well-known ones are, from Debian's packages."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import docker

from dev.debian import debian_tree
from dev.images import build
from tests.support.images import imported

PACKAGES = ("postgresql", "redis-server", "nginx-light")
# Each begins as root, takes over its folder and goes on as its own user.
POSTGRES = """\
FROM {base}
ENV PGDATA=/var/lib/postgresql/data
ENV PATH=/usr/lib/postgresql/15/bin:/usr/sbin:/usr/bin:/sbin:/bin
COPY . /
VOLUME /var/lib/postgresql/data
EXPOSE 5432
STOPSIGNAL SIGINT
ENTRYPOINT ["/entrypoint"]
CMD ["postgres", "-c", "listen_addresses=*"]
"""
POSTGRES_ENTRYPOINT = b"""#!/bin/sh -eu
mkdir -p "$PGDATA" /var/run/postgresql
chown postgres: "$PGDATA" /var/run/postgresql
chmod 700 "$PGDATA"
as_postgres="setpriv --reuid=postgres --regid=postgres --init-groups"
[ -s "$PGDATA/PG_VERSION" ] || $as_postgres initdb --auth=trust --no-sync > /dev/null
exec $as_postgres "$@"
"""
REDIS = """\
FROM {base}
COPY . /
WORKDIR /data
VOLUME /data
EXPOSE 6379
ENTRYPOINT ["/entrypoint"]
CMD ["redis-server", "--appendonly", "yes", "--protected-mode", "no"]
"""
REDIS_ENTRYPOINT = b"""#!/bin/sh -eu
chown redis: .
exec setpriv --reuid=redis --regid=redis --init-groups "$@"
"""
NGINX = """\
FROM {base}
EXPOSE 80
STOPSIGNAL SIGQUIT
CMD ["nginx", "-g", "daemon off;"]
"""


@dataclass(frozen=True, kw_only=True)
class Service:
    """A service, how an app of it is created, and how a word is written to it and read.

    ``write`` has ``{word}`` in it; ``read`` prints the word that was written last.
    """

    name: str
    dockerfile: str
    entrypoint: bytes
    write: str
    read: str
    fields: Mapping[str, object] = field(default_factory=dict)


SERVICES = (
    Service(
        name="postgresql",
        dockerfile=POSTGRES,
        entrypoint=POSTGRES_ENTRYPOINT,
        write=(
            "psql -qU postgres -c 'CREATE TABLE IF NOT EXISTS words (word text)'"
            " -c 'TRUNCATE words' -c \"INSERT INTO words VALUES ('{word}')\""
        ),
        read="psql -AtU postgres -c 'SELECT word FROM words'",
    ),
    Service(
        name="redis",
        dockerfile=REDIS,
        entrypoint=REDIS_ENTRYPOINT,
        write="redis-cli SET word {word}",
        read="redis-cli GET word",
    ),
    Service(
        name="nginx",
        dockerfile=NGINX,
        entrypoint=b"",
        write="echo {word} > /var/www/html/word",
        read=(
            "exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/80;"
            ' printf "GET /word HTTP/1.0\\r\\n\\r\\n" >&3; tail -n 1 <&3\''
        ),
        fields={"data": ["/var/www/html"]},
    ),
)


@contextmanager
def service_images(client: docker.APIClient, run: str) -> Iterator[Mapping[str, tuple[str, str]]]:
    """Yield the tags of each service's image and of its next version, by the service's name."""
    with ExitStack() as stack:
        base = f"rollcall-test-services:{run}"
        stack.enter_context(imported(client, debian_tree(*PACKAGES), base))
        tags = dict[str, tuple[str, str]]()
        for service in SERVICES:
            tag = f"rollcall-test-{service.name}:{run}"
            first, following = tags[service.name] = (tag, f"{tag}-next")
            files = {"entrypoint": service.entrypoint}
            build(client, first, service.dockerfile.format(base=base), files)
            stack.callback(client.remove_image, first, force=True)
            build(client, following, f"FROM {first}\nENV RELEASE=next\n", {})
            stack.callback(client.remove_image, following, force=True)
        yield tags
