# Functions that `.ci/run` and `.ci/versions` share; both source this file, and set `scratch`.

# The command under a line of the README such as "<!-- tests -->", without its fences.
read_command() {
    local command
    command=$(awk -v mark="<!-- $1 -->" '$0 == mark {found = 1; next} found && /^```/ {if (inside) exit; inside = 1; next} inside' README.md)
    [ -n "$command" ] || { echo ".ci/run: README.md has no command under <!-- $1 -->" >&2; exit 1; }
    echo "$command"
}

# A Python of this version with what makes environments, on the path or of pyenv.
find_python() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        "$candidate" -c 'import ensurepip, sys; print(sys.executable)' 2>/dev/null && return
    done
    return 1
}

# Packages of the system, if this user may install them.
install_for_system() {
    local as_root=()
    command -v apt-get || return
    [ "$(id -u)" -eq 0 ] || { sudo -n true && as_root=(sudo -n); } || return
    "${as_root[@]}" timeout 120 apt-get -q update || true
    # Debian's package of the broker would start one; at run level 1 it does not.
    "${as_root[@]}" env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@"
}

# Run commands beside each other, and show what each prints after the one before. In the background, as the shell would not
# stop at an error inside a function that it tests.
run_beside() {
    local result=0 command jobs=()
    for command in "$@"; do
        $command >"$scratch/${command// /-}.log" 2>&1 &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do
        wait "$job" || result=$?
    done
    for command in "$@"; do
        cat "$scratch/${command// /-}.log"
    done
    return "$result"
}
