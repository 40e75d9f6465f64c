"""The command line: `ostinato devices | compile | check | profile | report | merge | calibrate | decode | demo`.

Exit status: 0 when all went well, 1 when something was wrong with what was asked for (a kernel that does not compile,
no device, a race, a damaged recording), 2 when the command line itself was wrong, or a setting in the environment;
`check` and `profile` pass on that of the program. With `--json`, standard output holds only the JSON.
"""

from .group import main

__all__ = ["main"]
