"""Whether the figures can be believed: the checks that stand under every table.

Each check ends in a status and a sentence. *Fine*: nothing to see. *Noted*: read the sentence before you rely on the
figures. *Error*: do not rely on them; the sentence says what to suspect. *Not judged*: the sentence says why it could
not be.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from . import formatting
from .columns import BOUNDED, UNAVAILABLE, Columns, Device, Flags, Floats, Ints, partly_timed
from .lists import runs_by_list
from .statistics import Interval, bootstrap_medians, median, percentiles
from .timeline import SubmissionTimes

DRIFT_FINE, DRIFT_ERROR = 0.05, 0.10
DRIFT_RESOLUTION = 100
"""An interval is judged when it is this many times as long as the clock is uncertain."""
PERTURBATION_FINE, PERTURBATION_ERROR = 0.02, 0.10
PERTURBATION_LOW = 0.98
"""Sampling makes nothing faster: a ratio below this means that the two sides are not alike."""
_MUCH_HOST_TIME = 0.05
"""Of the time from the first start to the last end."""
_MIN_PROBES = 4
_MIN_JUDGED = 5
"""Fewer command buffers than this are no ground for calling the whole an error."""
_TOO_MUCH = "sampling changes what it measures; trust ratios between kernels, not their times, or sample less"
_LOST_SUBMISSIONS = ("submissions:", "submission that", "rows of submissions")
"""How the places begin under which submissions are counted as lost."""
_OUTLIERS = 0.05
"""Up to this part of the command buffers may stray before the whole is in error."""


class Status(StrEnum):
    """What a check came to."""

    FINE = "fine"
    NOTED = "noted"
    ERROR = "error"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check."""

    name: str
    status: Status
    sentence: str


# --- drift ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drift:
    """The span of the dispatches against the command buffers' own intervals."""

    check: Check
    judged: int
    fine: int
    noted: int
    error: int
    too_short: int
    """Command buffers too short to judge."""
    overall: float | None
    """(intervals - spans) / intervals of all judged together; negative when spans are longer."""
    median: float | None
    worst: float | None


def drift(columns: Columns, times: SubmissionTimes, warm_up: Flags) -> Drift:
    """Judges the sampled command buffers of all lists that usually take long enough for their clock.

    Lists are chosen by their median: among short ones only the strays would be long enough by themselves.
    """
    subs = columns.submissions
    uncertainty = np.array([d.clock_uncertainty_ns or 0.0 for d in columns.devices] or [0.0])
    shortest = np.array([_shortest_judged_ns(d) for d in columns.devices] or [0.0])
    partly = partly_timed(columns)
    sampled = subs.ran & (times.sampled > 0) & ~warm_up & ~partly
    usual = _usual_interval(columns, times, sampled)
    long_enough = sampled & (usual > shortest[subs.device]) & (times.interval_ns > 0)
    interval, span = times.interval_ns[long_enough], times.span_ns[long_enough]
    # What counts is where the dispatches lie, too: a span of the right length at the wrong time is no better.
    outside = np.maximum(subs.start_ns[long_enough] - times.first_ns[long_enough], 0)
    outside += np.maximum(times.last_ns[long_enough] - subs.end_ns[long_enough], 0)
    outside = np.maximum(outside - 2 * uncertainty[subs.device[long_enough]], 0)
    too_short = int(sampled.sum()) - interval.size
    judged = partly & ~warm_up & (times.interval_ns > shortest[subs.device])
    parts, strays = int((partly & ~warm_up).sum()), _strays(columns, times, judged, uncertainty)
    if strays > _OUTLIERS * parts:
        told = f"in {strays:,} of {formatting.count(parts, 'command buffer')} that took turns at being timed"
        why = f"{told}, dispatches lie outside: {_drift_cause(-1.0, outside)}"
        status = Status.ERROR if parts >= _MIN_JUDGED else Status.NOTED
        return Drift(Check("drift", status, why), parts, parts - strays, 0, strays, too_short, None, None, None)
    if interval.size == 0:
        why = _why_not_judged(too_short, parts, inside=not strays and bool(judged.any()))
        return Drift(Check("drift", Status.NOT_JUDGED, why), 0, 0, 0, 0, too_short, None, None, None)
    signed: Floats = (interval - span) / interval
    size = np.maximum(np.abs(signed), outside / interval)
    error, noted = int((size > DRIFT_ERROR).sum()), int(((size > DRIFT_FINE) & (size <= DRIFT_ERROR)).sum())
    overall = float((interval - span).sum() / interval.sum())
    typical = median(size)
    worst = float(signed[size.argmax()])
    pooled = max(abs(overall), typical)
    sentence = (
        f"dispatches span {formatting.percent(1 - overall)} of {formatting.count(interval.size, 'command buffer')}"
    )
    status = Status.FINE
    if pooled > DRIFT_ERROR or error > _OUTLIERS * interval.size:
        status = Status.ERROR if interval.size >= _MIN_JUDGED else Status.NOTED
    elif pooled > DRIFT_FINE or noted + error:
        status = Status.NOTED
    if noted + error:
        off = f"{noted + error:,} of them {'is' if noted + error == 1 else 'are'}"
        sentence += f"; {off} off by more than {formatting.whole_percent(DRIFT_FINE)}, the worst by {_signed(worst)}"
    if pooled > DRIFT_ERROR or error > _OUTLIERS * interval.size:
        sentence += f": {_drift_cause(overall if abs(overall) > DRIFT_FINE else worst, outside)}"
    if status is Status.NOTED and interval.size < _MIN_JUDGED:
        sentence += f"; {_MIN_JUDGED} are needed for a judgement"
    if too_short:
        sentence += f"; {formatting.count(too_short, 'other')} too short to judge"
    if parts:
        sentence += f"; {formatting.count(parts, 'other')} timed in part"
    return Drift(
        Check("drift", status, sentence),
        interval.size,
        interval.size - noted - error,
        noted,
        error,
        too_short,
        overall,
        typical,
        worst,
    )


def _why_not_judged(too_short: int, parts: int, inside: bool) -> str:
    if too_short:
        told = formatting.count(too_short, "command buffer")
        return (
            f"{told} too short to judge: below {DRIFT_RESOLUTION} × what the clock resolves, or"
            f" {round(1 / DRIFT_FINE)} × what starting and ending one takes"
        )
    if parts:
        told = f"in {formatting.count(parts, 'command buffer')} only a part of the dispatches was timed"
        return f"{told}; none of them lies outside" if inside else told
    return "no command buffer has both an interval of its own and sampled dispatches"


def _strays(columns: Columns, times: SubmissionTimes, partly: Flags, uncertainty_ns: Floats) -> int:
    """How many of the command buffers that are timed in part have dispatches outside of them.

    That is all that can be judged: the dispatches say nothing of the length of the whole.
    """
    subs = columns.submissions
    outside = np.maximum(subs.start_ns - times.first_ns, 0) + np.maximum(times.last_ns - subs.end_ns, 0)
    return int((partly & (outside - 2 * uncertainty_ns[subs.device] > DRIFT_ERROR * times.interval_ns)).sum())


def _usual_interval(columns: Columns, times: SubmissionTimes, chosen: Flags) -> Floats:
    """For every chosen submission the median interval of its list on its device; 0 for the others."""
    usual = np.zeros(len(columns.submissions))
    for rows in runs_by_list(columns, chosen):
        usual[rows] = median(times.interval_ns[rows])
    return usual


def _drift_cause(signed: float, outside: Ints) -> str:
    if signed < 0 or outside.any():
        return "suspect the clocks: dispatches lie outside their own command buffer, so device and host time disagree"
    return (
        "suspect time that no sample covers: dispatches left out or dropped, work in front of the first or behind "
        "the last, or a preempted device"
    )


def _signed(part: float) -> str:
    return formatting.percent(part) if part >= 0 else f"-{formatting.percent(-part)}"


# --- perturbation --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Perturbation:
    """What sampling cost."""

    check: Check
    ratio: Interval | None
    """Sampled over unsampled, by medians of the same plans; None when not measured."""
    probes: int
    """Submissions left unsampled to find out."""
    sampled: int
    """Submissions they were compared with."""
    estimate: float | None
    """The cost as a part of the time, from calibrated costs, where it was not measured."""


def perturbation(columns: Columns, times: SubmissionTimes, warm_up: Flags) -> Perturbation:
    """Compares sampled and unsampled submissions of the same plans; else estimates from the cost of a timestamp."""
    subs = columns.submissions
    probes = int((subs.probe & subs.ran).sum())
    pairs = []
    for rows in runs_by_list(columns, subs.ran & ~warm_up & (times.interval_ns > 0)):
        sampled, bare = (times.interval_ns[rows[side[rows]]] for side in (subs.sampled, subs.probe))
        if sampled.size >= _MIN_PROBES and bare.size >= _MIN_PROBES:
            pairs.append((np.sort(sampled.astype(np.float64)), np.sort(bare.astype(np.float64))))
    if pairs:
        return _measured(pairs, probes)
    if not (times.sampled > 0).any():
        sentence = "nothing was sampled, so nothing was disturbed"
        return Perturbation(Check("perturbation", Status.NOT_JUDGED, sentence), None, probes, 0, None)
    few = (
        f"{formatting.count(probes, 'replay')} ran unsampled, {_MIN_PROBES} of each list are needed; " if probes else ""
    )
    estimate = _estimate(columns, times)
    if estimate is None:
        sentence = f"{few}no replay ran unsampled" if not probes else few.removesuffix("; ")
        sentence += ", and what a timestamp costs was not calibrated on this device"
        return Perturbation(Check("perturbation", Status.NOT_JUDGED, sentence), None, probes, 0, None)
    sentence = f"{few}not measured; by what a timestamp costs, an estimate, about {formatting.percent(estimate)} slower"
    status = Status.NOTED if estimate > PERTURBATION_FINE else Status.NOT_JUDGED
    if estimate > PERTURBATION_ERROR:
        status = Status.ERROR
        sentence += f": {_TOO_MUCH}"
    return Perturbation(Check("perturbation", status, sentence), None, probes, 0, estimate)


def _measured(pairs: list[tuple[Floats, Floats]], probes: int) -> Perturbation:
    generator = np.random.default_rng(0)
    weights = [sampled.size + bare.size for sampled, bare in pairs]
    above = sum(w * median(sampled) for w, (sampled, _) in zip(weights, pairs, strict=True))
    below = sum(w * median(bare) for w, (_, bare) in zip(weights, pairs, strict=True))
    drawn_above = sum(w * bootstrap_medians(s, generator) for w, (s, _) in zip(weights, pairs, strict=True))
    drawn_below = sum(w * bootstrap_medians(b, generator) for w, (_, b) in zip(weights, pairs, strict=True))
    low, high = percentiles(np.asarray(drawn_above / drawn_below), (2.5, 97.5))
    ratio = Interval(above / below, low, high)
    against = f"{sum(len(b) for _, b in pairs):,} unsampled against {sum(len(s) for s, _ in pairs):,} sampled replays"
    reach = f"95 % interval {ratio.low:.3f} to {ratio.high:.3f}"
    sentence = f"sampled replays took {ratio.estimate:.3f} × as long ({reach}; {against})"
    status = Status.FINE
    if ratio.low > 1 + PERTURBATION_ERROR:
        status = Status.ERROR
        sentence += f": {_TOO_MUCH}"
    elif ratio.high < PERTURBATION_LOW:
        status = Status.ERROR
        sentence += ": sampling makes nothing faster, so the two are not alike and the ratio says nothing"
    elif ratio.estimate > 1 + PERTURBATION_FINE and 1.0 not in ratio:
        status = Status.NOTED
    elif ratio.high - ratio.low > 2 * PERTURBATION_ERROR:
        status = Status.NOTED
        sentence += ": too noisy to tell"
    return Perturbation(Check("perturbation", status, sentence), ratio, probes, sum(len(s) for s, _ in pairs), None)


def _estimate(columns: Columns, times: SubmissionTimes) -> float | None:
    cost = np.array([d.timestamp_cost_ns if d.timestamp_cost_ns is not None else np.nan for d in columns.devices])
    device = columns.submissions.device
    chosen = (times.sampled > 0) & (times.interval_ns > 0)
    chosen &= ~np.isnan(cost[device]) if cost.size else False
    if not chosen.any():
        return None
    # What sampling a dispatch costs lies inside the measured interval.
    spent = float((cost[device[chosen]] * times.sampled[chosen]).sum())
    whole = float(times.interval_ns[chosen].sum())
    # A cost that exceeds the whole was calibrated on something slower; it still says that sampling is most of it.
    return spent / max(whole - spent, 0.01 * whole)


# --- the rest ------------------------------------------------------------------------------------------------


def uncounted_submissions(columns: Columns) -> int:
    """How many are missing by the numbers of the others, beyond those that were counted as lost."""
    counted = sum(drop.count for drop in columns.drops if drop.where.startswith(_LOST_SUBMISSIONS))
    return max(columns.missing_submissions - counted, 0)


def drops(columns: Columns) -> Check:
    """Whether anything was lost: what was counted, and what is missing from the numbers of the submissions."""
    total, uncounted = sum(drop.count for drop in columns.drops), uncounted_submissions(columns)
    unfinished = "" if columns.closed else "the recording was not closed: what ran in its last second may be missing"
    if total + uncounted == 0:
        return Check("drops", Status.NOTED if unfinished else Status.FINE, unfinished or "nothing was dropped")
    parts = []
    if total:
        where = ", ".join(f"{drop.count:,} {drop.where}" for drop in columns.drops if drop.count)
        parts.append(f"{total:,} dropped ({where})")
    if uncounted:
        verb = "is" if uncounted == 1 else "are"
        parts.append(f"{formatting.count(uncounted, 'command buffer')} {verb} missing, by the numbers of the others")
    sentence = f"{'; '.join(parts)}: counts and totals are too low"
    many = total > 0.01 * (len(columns.samples) + total)
    many |= uncounted > 0.01 * (len(columns.submissions) + uncounted)
    sentence += f"; {unfinished}" if unfinished else ""
    return Check("drops", Status.ERROR if many else Status.NOTED, sentence)


def clock(columns: Columns) -> Check:
    """Whether the clocks are good enough for the dispatches that were timed."""
    known = [d for d in columns.devices if d.clock_uncertainty_ns is not None]
    if not known:
        return Check("clock", Status.NOT_JUDGED, "how uncertain the clocks are was not recorded")
    worst = max(d.clock_uncertainty_ns or 0.0 for d in known)
    step = max(_resolution_ns(d) for d in known)
    sentence = f"host and device time agree to ±{formatting.time(worst)}"
    if step != worst:
        sentence += f"; the device counts in steps of {formatting.time(step)}"
    samples = columns.samples
    bounded = int((samples.status == BOUNDED).sum())
    if bounded:
        told = formatting.count(bounded, "dispatch", "dispatches")
        sentence += f"; {told} shorter than the clock resolves, or timed together with others"
    good = samples.status != UNAVAILABLE
    if not good.any():
        return Check("clock", Status.NOT_JUDGED, f"{sentence}; no dispatch was timed")
    shortest = float(np.mean(samples.end_ns[good] - samples.start_ns[good] < step))
    if shortest > 0.1 or bounded > 0.1 * good.sum():
        sentence += f"; {formatting.percent(shortest)} of the dispatches are shorter than that: their times are rough"
        return Check("clock", Status.NOTED, sentence)
    return Check("clock", Status.FINE, sentence)


def _shortest_judged_ns(device: Device) -> float:
    """From how long on a command buffer is judged: below, the clock or its own start and end would be taken for drift.

    Lengths are those of one clock, the device's own; only where they lie depends on how it maps to the host's.
    """
    return max(DRIFT_RESOLUTION * _resolution_ns(device), device.edges_ns / DRIFT_FINE)


def _resolution_ns(device: Device) -> float:
    """The shortest time that a device tells from none."""
    return (device.clock_uncertainty_ns or 0.0) if device.timer_step_ns is None else device.timer_step_ns


def repetitions(columns: Columns) -> Check:
    """How often the same work ran: once says nothing of the spread."""
    subs = columns.submissions
    ran = subs.plan[subs.ran & (subs.plan >= 0)]
    if ran.size == 0:
        return Check("repetitions", Status.NOT_JUDGED, "nothing ran")
    counts = np.bincount(ran)
    counts = counts[counts > 0]
    often = int((counts >= 5).sum())
    work = f"{formatting.count(ran.size, 'submission')} of {formatting.count(counts.size, 'command list')}"
    if counts.size == 1 or often == counts.size:
        least = f"each ran at least {int(counts.min()):,} times" if counts.size > 1 else "all the same"
        sentence = f"{work}, {least}" if ran.size > 1 else "it ran once"
    else:
        sentence = f"{work}; {often:,} of them ran five times or more"
    covered = float(counts[counts >= 5].sum()) / float(ran.size)
    if covered >= 0.5:
        return Check("repetitions", Status.FINE, sentence)
    return Check("repetitions", Status.NOTED, f"{sentence}: too few to say how much times vary")


def warm_up(columns: Columns, times: SubmissionTimes, first: Flags) -> Check:
    """How much slower first runs were, and where they are left out."""
    if not columns.submissions.ran.any():
        return Check("warm-up", Status.NOT_JUDGED, "nothing ran")
    if not first.any():
        return Check("warm-up", Status.NOTED, "nothing ran three times, so no first run was set aside")
    subs = columns.submissions
    plans = subs.plan[first]
    rest = subs.ran & ~first & np.isin(subs.plan, plans)
    count = int(first.sum())
    slower = float(times.interval_ns[first].sum()) / count
    usual = float(times.interval_ns[rest].mean()) if rest.any() else np.nan
    aside = formatting.count(count, "first run")
    sentence = f"{aside} set aside in suspects, critical path and the checks, kept in the tables"
    if usual > 0:
        sentence += f"; {'it' if count == 1 else 'they'} took {slower / usual:.2f} × the time of the others"
    heavy = float(times.interval_ns[first].sum()) > 0.1 * float(times.interval_ns[subs.ran].sum())
    if usual > 0 and slower > 1.5 * usual and heavy:
        return Check("warm-up", Status.NOTED, f"{sentence}: totals and means contain them, medians hardly")
    return Check("warm-up", Status.FINE, sentence)


def host_cost(columns: Columns) -> Check:
    """What the profile itself took of the program's threads."""
    known = [one.profile_ns for one in columns.origins if one.profile_ns is not None]
    count = len(columns.submissions)
    if not known or len(known) < len(columns.origins) or not count:
        return Check(
            "host", Status.NOT_JUDGED, "what the profile took of the program's own time is not in the recording"
        )
    spent_ns = sum(known)
    each = f"{formatting.time(spent_ns / count)} a command buffer, {formatting.time(spent_ns)} in all"
    sentence = f"writing it down took {each}, of the program's own time; idle stretches of the device may contain it"
    subs = columns.submissions
    span_ns = float(subs.end_ns[subs.ran].max() - subs.start_ns[subs.ran].min()) if subs.ran.any() else 0.0
    return Check("host", Status.NOTED if spent_ns > _MUCH_HOST_TIME * span_ns else Status.FINE, sentence)


def measured(columns: Columns, times: SubmissionTimes) -> Check:
    """What has no time, and why."""
    subs = columns.submissions
    if len(subs) == 0:
        return Check("measured", Status.NOT_JUDGED, "nothing was recorded")
    # A command buffer may be measured and still lack something that was asked for: its dispatches. What failed has a
    # sentence of its own.
    lacking = ((subs.status != "measured") | (subs.reason != "")) & (subs.error == "")
    reasons = Counter(reason or "no reason given" for reason in subs.reason[lacking].tolist())
    failed = [error for error in subs.error.tolist() if error]
    bare = int((subs.sampled & (times.sampled == 0) & (subs.error == "") & ~lacking).sum())
    if not (reasons or failed or bare):
        count = formatting.count(int((times.sampled > 0).sum()), "command buffer")
        sentence = f"dispatches were timed in {count}" if (times.sampled > 0).any() else "command buffers only"
        if some := int(partly_timed(columns).sum()):
            sentence += f", in {some:,} of {'it' if some == 1 else 'them'} in part, as they take turns"
        return Check("measured", Status.FINE, sentence)
    parts = [f"{formatting.count(n, 'command buffer')} without full times: {why}" for why, n in reasons.most_common(3)]
    if failed:
        parts.append(f"{formatting.count(len(failed), 'command buffer')} failed: {failed[0]}")
    if bare:
        parts.append(f"{formatting.count(bare, 'command buffer')} without a sample of any dispatch")
    return Check("measured", Status.NOTED, "; ".join(parts))
