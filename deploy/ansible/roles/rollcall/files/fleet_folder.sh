#!/bin/sh
# Make what the folder of a fleet lacks, laid out as in docs/rollout.md, and print what was made.
# fleet_folder.sh FOLDER DAYS NAME=HOSTNAME...: a subfolder for each machine, of which the registry's
# is `registry`, and those of the operator and of Prometheus. Certificates that end within DAYS are
# made anew. `secret=FILE` is a secret of node keys, `agent-secret=NAME` one of agents' keys: each host
# gets the key that is derived from it, in the file NAME.
set -eu
umask 077
folder=$1 seconds=$(($2 * 86400))
shift 2
mkdir -p "$folder"
cd "$folder"

made() { echo "made $1"; }

quietly() { # COMMAND: what openssl says is of interest only if it fails
    said=$("$@" 2>&1) || {
        echo "$said" >&2
        exit 1
    }
}

key() { # FILE
    [ ! -s "$1" ] || return 0
    openssl rand -hex 32 >"$1.new"
    mv "$1.new" "$1"
    made "$1"
}

copy() { # FILE TARGET
    cmp -s "$1" "$2" || {
        cp "$1" "$2"
        made "$2"
    }
}

agent_key() { # FOLDER HOST NAME: what `rollcall agent-key HOST` prints, no secret in a command line
    python3 - "$2" "operator/agent-secret-$3" >"$1/$3.new" <<'END'
import base64, hmac, pathlib, sys

host, secret = sys.argv[1].lower().removesuffix("."), pathlib.Path(sys.argv[2]).read_text().strip()
mac = hmac.digest(secret.encode(), f"rollcall agent {host}".encode(), "sha256")
print(f"ak1.{host}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}")
END
    copy "$1/$3.new" "$1/$3"
    rm "$1/$3.new"
}

ca() {
    [ ! -s ca.crt ] || return 0
    quietly openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
        -subj "/CN=rollcall CA" -keyout ca.key -out ca.crt.new \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign \
        -addext subjectKeyIdentifier=hash -addext authorityKeyIdentifier=keyid:always
    mv ca.crt.new ca.crt
    made ca.crt
}

good() { # FOLDER NAME: the certificate is of this CA, has the name and the key, and lasts long enough
    openssl verify -CAfile ca.crt -verify_hostname "$2" "$1/tls.crt" &&
        openssl x509 -noout -checkend "$seconds" -in "$1/tls.crt" &&
        [ "$(openssl x509 -noout -pubkey -in "$1/tls.crt")" = "$(openssl pkey -pubout -in "$1/tls.key")" ]
}

certificate() { # FOLDER NAME
    mkdir -p "$1"
    copy ca.crt "$1/ca.crt"
    ! good "$1" "$2" >/dev/null 2>&1 || return 0
    # A common name has at most 64 characters; the daemons look at the subjectAltName.
    quietly openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
        -subj "/CN=$(printf %.64s "$2")" -keyout "$1/tls.key.new" -out "$1/tls.csr"
    printf '%s\n' "subjectAltName=DNS:$2" extendedKeyUsage=serverAuth,clientAuth \
        subjectKeyIdentifier=hash authorityKeyIdentifier=keyid,issuer >"$1/tls.ext"
    quietly openssl x509 -req -in "$1/tls.csr" -CA ca.crt -CAkey ca.key -days 90 \
        -extfile "$1/tls.ext" -out "$1/tls.crt.new"
    mv "$1/tls.key.new" "$1/tls.key"
    mv "$1/tls.crt.new" "$1/tls.crt"
    made "$1/tls.crt"
}

header() { # FILE: what curl sends as the operator
    printf 'Authorization: Bearer %s\n' "$(cat registry/ops)" >"$1.new"
    copy "$1.new" "$1"
    rm "$1.new"
}

check_secrets() { # MACHINE...: a new secret would reject the keys that all hosts have
    named=false
    for machine in "$@"; do
        case $machine in
        secret=*.new)
            echo "rollcall_node_secrets: the name of ${machine#*=} must not end in .new" >&2
            exit 1
            ;;
        secret=node-secret*) [ ! -s "registry/${machine#*=}" ] || named=true ;;
        secret=*)
            echo "rollcall_node_secrets: the name of ${machine#*=} must begin with node-secret" >&2
            exit 1
            ;;
        esac
    done
    rm -f registry/node-secret*.new # of a run that was cut off
    if ! $named && [ -n "$(ls registry/node-secret* 2>/dev/null)" ]; then
        echo "$folder/registry has a secret of node keys that rollcall_node_secrets does not name" >&2
        exit 1
    fi
}

check_agent_secrets() { # MACHINE...: as above, for the keys with which the command asks agents
    named=false
    for machine in "$@"; do
        name=${machine#agent-secret=}
        case $machine in
        agent-secret= | agent-secret=-* | agent-secret=*[!a-z0-9-]* | agent-secret=prometheus)
            echo "rollcall_agent_secrets: the name '$name' must be of a-z, 0-9 and -, and not prometheus" >&2
            exit 1
            ;;
        agent-secret=*)
            secrets="$secrets $name"
            [ ! -s "operator/agent-secret-$name" ] || named=true
            ;;
        esac
    done
    rm -f operator/agent-secret-*.new
    if ! $named && [ -n "$secrets" ] && [ -n "$(ls operator/agent-secret-* 2>/dev/null)" ]; then
        echo "$folder/operator has a secret of agents' keys that rollcall_agent_secrets does not name" >&2
        exit 1
    fi
}

secrets=
check_secrets "$@"
check_agent_secrets "$@"
ca
key agents.key
mkdir -p operator
for name in $secrets; do
    key "operator/agent-secret-$name" # it stays here: whoever has it can ask every agent
done
for machine in "$@" operator=operator prometheus=prometheus; do
    folder=${machine%%=*}
    case $folder in
    secret)
        key "registry/${machine#*=}"
        continue
        ;;
    agent-secret) continue ;;
    esac
    certificate "$folder" "${machine#*=}"
    case $folder in
    operator | prometheus) ;;
    registry)
        key registry/ops
        key registry/scraper
        ;;
    *)
        for name in $secrets; do
            agent_key "$folder" "${machine#*=}" "$name"
        done
        copy agents.key "$folder/agents.key"
        ;;
    esac
done
header operator/header
copy registry/scraper prometheus/scraper
copy agents.key prometheus/agents.key
