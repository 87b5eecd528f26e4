#!/bin/sh
# Print the settings that a new host's daemon $1 (agent, registry) starts from, which are:
# config/$1.yml with the state directory of its unit, so that neither user can touch the other's,
# and with the keys that an installation makes.
set -eu

case $1 in
agent) ops=agent-ops scrapes=prometheus ;;
registry) ops=ops scrapes=scraper ;;
esac
keys="[{name: ops, file: $ops.key, allow: [read, write]}, {name: $scrapes, file: $scrapes.key, allow: [scrape]}]"
exec sed -e "s|///var/lib/rollcall/|///var/lib/rollcall-$1/|" \
    -e "s|^keys: \[\] *|keys: $keys  |" \
    -e 's|^# node_secret: {file: node.secret}  |node_secret: {file: node.secret}    |' \
    "$(dirname "$0")/../config/$1.yml"
