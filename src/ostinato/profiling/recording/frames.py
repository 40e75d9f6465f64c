"""A recording as a pandas data frame: one row for each dispatch, the columns of the view `dispatch_report`.

pandas is imported when a frame is asked for; this library does not depend on it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import MissingPackage
from .columns import AMOUNTS, NONE, STATUSES, UNAVAILABLE, Flags, Ints, position
from .reader import Recording


def to_pandas(recording: Recording) -> Any:
    """A `pandas.DataFrame` of all dispatches, copies and fills that have a sample.

    Texts are categorical, and numbers that may be missing are nullable integers (`Int64`). Raises `MissingPackage`
    without pandas, and `RecordingError` for a recording that is damaged or does not fit in memory.
    """
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        raise MissingPackage(
            "to_pandas() needs the package pandas: pip install pandas. Without it, recording.samples() gives NumPy"
            " columns, and any tool that reads SQLite reads the view dispatch_report of a recording's file"
        ) from None

    def text(values: Sequence[str | None], rows: Ints) -> Any:
        numbers: dict[str, int] = {}
        codes = np.array([-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values], int)
        return pandas.Categorical.from_codes(codes[rows] if len(codes) else rows, list(numbers))

    def nullable(values: Ints, missing: Flags) -> Any:
        return pandas.arrays.IntegerArray(np.where(missing, 0, values), missing)

    return pandas.DataFrame(_columns(recording, text, nullable), copy=False)


def _columns(
    recording: Recording, text: Callable[[Sequence[str | None], Ints], Any], nullable: Callable[[Ints, Flags], Any]
) -> dict[str, Any]:
    subs, commands, samples = recording.submissions, recording.commands, recording.samples()
    owner = position(subs.id, samples.submission)
    planned = subs.plan[owner] != NONE
    owner, node = owner[planned], samples.node[planned].astype(np.int64)
    start_ns, end_ns, status = (column[planned] for column in (samples.start_ns, samples.end_ns, samples.status))
    first, of_node = _nodes(recording)
    command = of_node[first[position(recording.plans.id, subs.plan[owner])] + node]
    device = position(np.array([one.id for one in recording.devices], np.int64), subs.device[owner])
    untimed = status == UNAVAILABLE
    amounts = {name: _amount(recording, name, command, owner) for name in AMOUNTS}
    return {
        "process": subs.process[owner],
        "device": text([one.name for one in recording.devices], device),
        "submission": subs.id[owner],
        "ordinal": subs.ordinal[owner],
        "submission_label": text(subs.label, owner),
        "node": node,
        "kind": text(commands.kind, command),
        "label": text(commands.label, command),
        "kernel": text(commands.kernel, command),
        "specialisation": text(commands.specialisation, command),
        "source": text(commands.source, command),
        "kernel_digest": text(commands.digest, command),
        "op_kind": text(commands.op_kind, command),
        **{f"threads_{axis}": commands.threads[command, number] for number, axis in enumerate("xyz")},
        **{f"group_{axis}": commands.group[command, number] for number, axis in enumerate("xyz")},
        "bytes_read": nullable(*amounts["bytes_read"]),
        "bytes_written": nullable(*amounts["bytes_written"]),
        "bytes_declared": commands.bytes_declared[command],
        "flops": nullable(*amounts["flops"]),
        "start_ns": nullable(start_ns, untimed),
        "end_ns": nullable(end_ns, untimed),
        "duration_ns": nullable(end_ns - start_ns, untimed),
        "place": text(commands.place, command),
        "status": text(STATUSES, status.astype(np.int64)),
    }


def _nodes(recording: Recording) -> tuple[Ints, Ints]:
    """Where the nodes of each plan begin when all lie one after another, and the row of each one's command."""
    listed = [recording.plan_commands(plan) for plan in recording.plans.id.tolist()]
    first = np.concatenate([[0], np.cumsum([len(nodes) for nodes in listed])]).astype(np.int64)
    ids = np.concatenate([np.zeros(0, np.int64), *listed])
    return first, position(recording.commands.id, ids)


def _amount(recording: Recording, name: str, command: Ints, owner: Ints) -> tuple[Ints, Flags]:
    """An amount of each dispatch, with what its submission's values make of it, and where it is missing."""
    constant: Ints = getattr(recording.commands, name)
    found, missing = constant[command], constant[command] == NONE
    terms, values, size = recording.terms, recording.values, len(recording.submissions.id)
    by_param = np.array(values.param, object)
    for row in np.flatnonzero(terms.amount == AMOUNTS.index(name)).tolist():
        given = np.flatnonzero(by_param == terms.param[row])
        value, known = np.zeros(size, np.int64), np.zeros(size, np.bool_)
        at = position(recording.submissions.id, values.submission[given])
        value[at], known[at] = values.value[given], True
        chosen: NDArray[np.bool_] = command == position(recording.commands.id, terms.command[row : row + 1])[0]
        counted = np.maximum(value[owner[chosen]] + terms.plus[row], 0)
        if terms.upto[row] != NONE:
            counted = np.minimum(counted, terms.upto[row])
        found[chosen] += terms.factor[row] * counted
        missing[chosen] |= ~known[owner[chosen]]
    return found, missing
