# Sourced by the scripts that need system packages. Bash 3.2.
#
#   packages PURPOSE NAME...   makes the Debian packages NAME available, or says how and returns 1
#
# As root on Debian or Ubuntu the missing ones are installed, unless WEIR_SETUP=0. Nothing here calls sudo: anyone else is
# told the one line to run. Removing a package is never part of it, and no service is started.

# Whether version $1 (1.96.0) is at least $2 (1.95).
at_least() {
    local have want i
    IFS=. read -r -a have <<<"${1%%[!0-9.]*}"
    IFS=. read -r -a want <<<"$2"
    for i in 0 1 2; do
        [ "${have[$i]:-0}" -gt "${want[$i]:-0}" ] && return 0
        [ "${have[$i]:-0}" -lt "${want[$i]:-0}" ] && return 1
    done
    return 0
}

on_debian() {
    command -v dpkg-query >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1
}

may_install() {
    on_debian && [ "$(id -u)" = 0 ] && [ "${WEIR_SETUP:-1}" != 0 ]
}

# Package lists are fetched once in a run, and only when something is to be installed.
package_lists_are_fresh=
refresh_package_lists() {
    [ -n "$package_lists_are_fresh" ] && return 0
    apt-get update -qq >&2 && package_lists_are_fresh=yes
}

# Prints those of the packages $@ that are not installed.
missing_packages() {
    local name missing=""
    for name in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing="$missing $name"
    done
    echo "${missing# }"
}

packages() {
    local purpose=$1 missing policy=/usr/sbin/policy-rc.d wrote_policy="" outcome=0
    shift
    missing=$(missing_packages "$@")
    [ -z "$missing" ] && return 0
    if ! may_install; then
        echo "missing: $purpose. Run once, as root: apt-get update && apt-get install $missing" >&2
        return 1
    fi
    echo "installing $missing ($purpose; WEIR_SETUP=0 turns this off)" >&2
    refresh_package_lists || return 1
    # Debian's own way of installing a server without starting it.
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy && wrote_policy=yes
    fi
    # shellcheck disable=SC2086 # the names are words
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-remove --no-install-recommends $missing >&2 </dev/null || outcome=1
    [ -n "$wrote_policy" ] && rm -f $policy
    [ $outcome = 0 ] || echo "could not install $missing" >&2
    return $outcome
}
