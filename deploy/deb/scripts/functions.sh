# The package owns $environment. $venv is the path that units and commands use: a link, which is made
# when the settings of this host were found good. Before it was installed by this package, it is the
# folder that `make install` made, so that nothing changes until then.
environment=/opt/rollcall/environment
venv=/opt/rollcall/venv
etc=/etc/rollcall
version=@VERSION@

say() { echo "rollcall: $*" >&2; }

# `make install` made $venv, so the package was never configured here.
make_install_is_used() { [ -d "$venv" ] && [ ! -L "$venv" ]; }

systemd_runs() { [ -d /run/systemd/system ]; }

# Print each unit of the package that is enabled, one a line.
enabled_units() {
    for link in /etc/systemd/system/*.wants/rollcall-agent.service \
        /etc/systemd/system/*.wants/rollcall-registry.service \
        /etc/systemd/system/*.wants/rollcall-registry@*.service; do
        [ ! -L "$link" ] || basename "$link"
    done | sort -u
}

# Print each unit of the package that runs, or that systemd is about to start again, one a line.
running_units() {
    systemd_runs || return 0
    systemctl list-units --plain --no-legend --state=active,activating,reloading \
        rollcall-agent.service rollcall-registry.service 'rollcall-registry@*.service' |
        while read -r unit _; do echo "$unit"; done
}

# Settings hold no secret unless somebody writes one into them: then only its daemon may read it.
own_settings() {
    for name in agent registry; do
        [ ! -e "$etc/$name.yml" ] || chgrp "rollcall-$name" "$etc/$name.yml"
    done
}

# Copy what the next start of a unit loads. Keys of a unit that runs may be nowhere but among its
# credentials. Where there is a file as well, it counts.
copy_credentials() { # UNIT USER FOLDER
    install -d -m 700 -o "$2" "$3"
    for file in "/run/credentials/$1"/*; do
        [ ! -e "$file" ] || install -m 400 -o "$2" "$file" "$3"
    done
    {
        cat "/usr/lib/systemd/system/${1%%[@.]*}.service"
        systemctl cat "$1" 2>/dev/null || true # drop-ins
    } | sed -n 's/^LoadCredential=\([^:]*\):/\1 /p' | while read -r name file; do
        [ ! -f "$file" ] || install -m 400 -o "$2" "$file" "$3/$name"
    done
}

# Let a version, whose files are in place, check the settings of a unit. It does so as the unit's user,
# since root reads files that the daemon cannot.
accepts() { # VERSION UNIT
    instance=${2#*@} && instance=${instance%.service}
    case $2 in
    rollcall-agent.service) program=agent instance= ;;
    rollcall-registry.service) program=registry instance= ;;
    rollcall-registry@*.service) program=registry ;;
    esac
    settings=$etc/$program$instance.yml user=rollcall-$program status=0
    work=$(mktemp -d -p /run)
    chmod 711 "$work"
    copy_credentials "$2" "$user" "$work/credentials"
    CREDENTIALS_DIRECTORY=$work/credentials \
        setpriv --reuid "$user" --regid "$user" --init-groups \
        "$environment/bin/python" -I -m "$program.main" --config "$settings" --check >&2 || {
        say "$settings is rejected by version $1, see above"
        status=1
    }
    rm -rf "$work"
    return "$status"
}

# The same for each unit that is in use.
check_settings() { # VERSION
    own_settings
    rejected=0
    for unit in $( (enabled_units; running_units) | sort -u); do
        accepts "$1" "$unit" || rejected=1
    done
    return "$rejected"
}

each_unit() { # ACTION, units on standard input
    while read -r unit; do
        deb-systemd-invoke "$1" "$unit" || say "$unit: $1 failed; see journalctl --unit $unit"
    done
}

# Pygments, a quarter of all, comes with rich, and nothing here imports it.
compile() {
    "$environment/bin/python" -I -m compileall -q -x /pygments/ "$environment/lib/modules/" ||
        say "not all modules could be compiled, so the daemons start more slowly"
}

# An upgrade compiles while files of the version before are there: dpkg removes them afterwards, but
# not what was compiled of them, nor the folders that hold it.
remove_compiled_alone() {
    find "$environment/lib/modules" -name __pycache__ -type d -prune | while read -r compiled; do
        folder=${compiled%/*}
        set -- "$folder"/*.py
        if [ ! -e "$1" ]; then
            rm -rf "$compiled"
            rmdir --ignore-fail-on-non-empty --parents "$folder" 2>/dev/null || true
        fi
    done
}

remove_compiled() {
    [ ! -d "$environment" ] || find "$environment" -name __pycache__ -type d -prune -exec rm -rf {} +
}

# The operator's settings are in place before the package is: dpkg would ask, or fail where nobody
# can answer. So they are put aside until it has installed its own. A copy would not do: dpkg compares
# the file in place with its own when it configures the package, before it runs a script again.
put_settings_aside() {
    for name in agent registry; do
        [ ! -e "$etc/$name.yml" ] || mv "$etc/$name.yml" "$etc/$name.yml.kept"
    done
}

put_settings_back() {
    for name in agent registry; do
        [ ! -e "$etc/$name.yml.kept" ] || mv "$etc/$name.yml.kept" "$etc/$name.yml"
    done
}

# A purge deletes the settings before it runs a script, even those that `make install` uses.
copy_settings() {
    for name in agent registry; do
        [ ! -e "$etc/$name.yml" ] || cp -p "$etc/$name.yml" "$etc/$name.yml.kept"
    done
}

# The settings themselves are there, and may have been changed since they were copied.
remove_copies() {
    for name in agent registry; do
        [ ! -e "$etc/$name.yml" ] || rm -f "$etc/$name.yml.kept"
    done
}
