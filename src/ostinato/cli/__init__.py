"""The command line: `ostinato --help` lists the commands.

Exit status: 0 for success; 1 for a failure (a kernel that does not compile, no device, a race, a damaged recording);
2 for a wrong command line or a wrong environment variable. `check` and `profile` pass on the program's own status. With
`--json`, standard output holds only the JSON.
"""

from .group import main

__all__ = ["main"]
