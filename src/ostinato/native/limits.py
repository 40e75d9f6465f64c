"""Runs one command under limits: `python -I -S limits.py CPU_SECONDS MEMORY_BYTES FILE_BYTES COMMAND...`.

A separate program, because setting limits between fork and exec is not safe in a threaded process, and because they
must apply to the compiler and not to the process that starts it.
"""

import os
import resource
import sys


def main() -> None:
    """Set the limits and become the command."""
    cpu_seconds, memory_bytes, file_bytes = (int(argument) for argument in sys.argv[1:4])
    for name, limit in (
        ("RLIMIT_CPU", cpu_seconds),
        ("RLIMIT_AS", memory_bytes),
        ("RLIMIT_FSIZE", file_bytes),
        ("RLIMIT_CORE", 0),
    ):
        kind = getattr(resource, name, None)
        if kind is None:
            continue
        hard = resource.getrlimit(kind)[1]
        wanted = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        try:
            resource.setrlimit(kind, (wanted, wanted))
        except (ValueError, OSError):
            continue  # macOS does not limit address space; the time limits still hold
    command = sys.argv[4:]
    try:
        os.execvpe(command[0], command, os.environ)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
