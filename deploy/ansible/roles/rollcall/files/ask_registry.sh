#!/bin/sh
# Ask the registry with the operator's certificate, and print what it answers.
# ask_registry.sh FOLDER ARGUMENT...: FOLDER is the one that fleet_folder.sh made, the arguments are curl's.
# ansible.builtin.uri cannot do this: on Python 3.13 and later, it requires the extension keyUsage, which
# an older CA of a fleet may lack. curl does not require it.
set -eu
folder=$1
shift
# No ~/.curlrc is read: with `insecure` in it, the key would be sent to whoever answers.
exec curl --disable --fail-with-body --silent --show-error --noproxy '*' --max-time 30 \
    --cacert "$folder/ca.crt" --cert "$folder/operator/tls.crt" --key "$folder/operator/tls.key" "$@"
