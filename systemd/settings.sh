#!/bin/sh
# Print the settings that a new host's daemon $1 (agent, registry) starts from, which are:
# config/$1.yml with the state directory of its unit, so that neither user can touch the other's,
# and with the keys that an installation makes. A new host isolates its apps and promises them no
# more memory than it has. The defaults do neither, so that an upgrade of a host without these
# settings changes nothing.
set -eu

ops='{name: ops, file: ops.key, allow: [read, write]}'
case $1 in
agent) keys="[$ops, {name: prometheus, file: prometheus.key, allow: [scrape]}]" ;;
registry) keys="[$ops, {name: scraper, file: scraper.key, allow: [scrape]}]" ;;
esac
exec sed -e "s|///var/lib/rollcall/|///var/lib/rollcall-$1/|" \
    -e "s|^keys: \[\] *|keys: $keys  |" \
    -e 's|^# node_secret: {file: node.secret}  |node_secret: {file: node.secret}    |' \
    -e 's/^  isolated: false /  isolated: true  /' \
    -e 's/^  overcommit_percent: 0  /  overcommit_percent: 100/' \
    "$(dirname "$0")/../config/$1.yml"
