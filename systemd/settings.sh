#!/bin/sh
# Print the settings that a new host's daemon $1 (agent, registry) starts from, which are:
# config/$1.yml with the state directory of its unit, so that neither user can touch the other's,
# and with the keys that an installation makes.
set -eu

ops='{name: ops, file: ops.key, allow: [read, write]}'
case $1 in
agent) keys="[$ops, {name: prometheus, file: prometheus.key, allow: [scrape]}]" ;;
registry) keys="[$ops, {name: scraper, file: scraper.key, allow: [scrape]}]" ;;
esac
exec sed -e "s|///var/lib/rollcall/|///var/lib/rollcall-$1/|" \
    -e "s|^keys: \[\] *|keys: $keys  |" \
    -e 's|^# node_secret: {file: node.secret}  |node_secret: {file: node.secret}    |' \
    "$(dirname "$0")/../config/$1.yml"
