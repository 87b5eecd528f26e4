#!/bin/sh
# Ask the registry as the operator, and print what it answers.
# ask_registry.sh FOLDER URL: FOLDER is the one that fleet_folder.sh made.
# ansible.builtin.uri cannot do this: on Python 3.13 and later, it rejects a CA without keyUsage, which
# a fleet may have had for years. curl accepts it, and reads the key from a file.
set -eu
exec curl --fail-with-body --silent --show-error --noproxy '*' --max-time 30 \
    --cacert "$1/ca.crt" --cert "$1/operator/tls.crt" --key "$1/operator/tls.key" \
    --header "@$1/operator/header" "$2"
