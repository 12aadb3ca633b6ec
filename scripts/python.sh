# Sourced by the scripts that need Python. Bash 3.2.

# Prints the Python to use: 3.10 or later, able to make a virtual environment.
find_python() {
    local candidate
    for candidate in python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}
