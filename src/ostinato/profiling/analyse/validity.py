"""Whether the figures can be trusted: the checks that every report ends with.

Each check has a status and a sentence. *Fine*: nothing to see. *Noted*: read the sentence before you rely on the
figures. *Error*: do not rely on them; the sentence names the likely cause. *Not judged*: the sentence says why.
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
"""An interval is judged when it is this many times as long as the resolution of the clock."""
PERTURBATION_FINE, PERTURBATION_ERROR = 0.02, 0.10
PERTURBATION_LOW = 0.98
"""Sampling makes nothing faster: a ratio below this means that the two groups are not comparable."""
_MUCH_HOST_TIME = 0.05
"""Of the time from the first start to the last end."""
_MIN_PROBES = 4
_MIN_JUDGED = 5
"""Fewer command buffers than this are noted, not an error."""
_TOO_MUCH = "sampling distorts the times; trust ratios between kernels, not absolute times, or sample less"
_LOST_SUBMISSIONS = ("submissions:", "submission that", "rows of submissions")
"""How the names of drops begin that count lost submissions."""
_OUTLIERS = 0.05
"""The part of the command buffers that may be outliers before the check is an error."""


class Status(StrEnum):
    """The outcome of a check."""

    FINE = "fine"
    NOTED = "noted"
    ERROR = "error"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a recording."""

    name: str
    status: Status
    sentence: str


# --- drift ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drift:
    """The span of the dispatches against the command buffers' own intervals."""

    check: Check
    too_short: int
    """Command buffers too short to judge."""
    judged: int = 0
    fine: int = 0
    noted: int = 0
    error: int = 0
    overall: float | None = None
    """(intervals - spans) / intervals of all judged together; negative when spans are longer."""
    median: float | None = None
    worst: float | None = None


def drift(columns: Columns, times: SubmissionTimes, warm_up: Flags) -> Drift:
    """Compares the span of the dispatches with the command buffer's own interval, where the clock is precise enough.

    Whole lists are chosen, by their median: of a short list only the outliers would be long enough.
    """
    subs = columns.submissions
    uncertainty = np.array([d.clock_uncertainty_ns or 0.0 for d in columns.devices] or [0.0])
    shortest = np.array([_shortest_judged_ns(d) for d in columns.devices] or [0.0])
    partly = partly_timed(columns)
    sampled = subs.ran & (times.sampled > 0) & ~warm_up & ~partly
    usual = _usual_interval(columns, times, sampled)
    long_enough = sampled & (usual > shortest[subs.device]) & (times.interval_ns > 0)
    interval, span = times.interval_ns[long_enough], times.span_ns[long_enough]
    # A span of the right length at the wrong time is drift too.
    beyond = np.maximum(subs.start_ns - times.first_ns, 0) + np.maximum(times.last_ns - subs.end_ns, 0)
    beyond = np.maximum(beyond - 2 * uncertainty[subs.device], 0)
    outside = beyond[long_enough]
    too_short = int(sampled.sum()) - interval.size
    # Of a partly timed command buffer only the position of its dispatches can be judged, not their span.
    judged = partly & ~warm_up & (times.interval_ns > shortest[subs.device])
    parts, strays = int((partly & ~warm_up).sum()), int((judged & (beyond > DRIFT_ERROR * times.interval_ns)).sum())
    if strays > _OUTLIERS * parts:
        buffers = f"{strays:,} of {formatting.count(parts, 'partly timed command buffer')}"
        why = f"in {buffers}, dispatches lie outside of it: {_drift_cause(-1.0, outside)}"
        status = Status.ERROR if parts >= _MIN_JUDGED else Status.NOTED
        return Drift(Check("drift", status, why), too_short, judged=parts, fine=parts - strays, error=strays)
    if interval.size == 0:
        why = _why_not_judged(too_short, parts, inside=not strays and bool(judged.any()))
        return Drift(Check("drift", Status.NOT_JUDGED, why), too_short)
    signed: Floats = (interval - span) / interval
    size = np.maximum(np.abs(signed), outside / interval)
    error, noted = int((size > DRIFT_ERROR).sum()), int(((size > DRIFT_FINE) & (size <= DRIFT_ERROR)).sum())
    overall = float((interval - span).sum() / interval.sum())
    typical = median(size)
    worst = float(signed[size.argmax()])
    pooled = max(abs(overall), typical)
    spans = formatting.percent(1 - overall)
    sentence = f"dispatches span {spans} of the time of {formatting.count(interval.size, 'command buffer')}"
    status = Status.NOTED if pooled > DRIFT_FINE or noted + error else Status.FINE
    if noted + error:
        off = f"{noted + error:,} of them {'is' if noted + error == 1 else 'are'}"
        most = f"{'-' if worst < 0 else ''}{formatting.percent(abs(worst))}"
        sentence += f"; {off} off by more than {formatting.whole_percent(DRIFT_FINE)}, the worst by {most}"
    if pooled > DRIFT_ERROR or error > _OUTLIERS * interval.size:
        status = Status.ERROR if interval.size >= _MIN_JUDGED else Status.NOTED
        sentence += f": {_drift_cause(overall if abs(overall) > DRIFT_FINE else worst, outside)}"
    if status is Status.NOTED and interval.size < _MIN_JUDGED:
        sentence += f"; at least {_MIN_JUDGED} are needed to judge"
    if too_short:
        sentence += f"; {formatting.count(too_short, 'other')} too short to judge"
    if parts:
        sentence += f"; {formatting.count(parts, 'other')} only partly timed"
    fine = interval.size - noted - error
    check = Check("drift", status, sentence)
    return Drift(check, too_short, interval.size, fine, noted, error, overall, typical, worst)


def _why_not_judged(too_short: int, parts: int, inside: bool) -> str:
    if too_short:
        return (
            f"{formatting.count(too_short, 'command buffer')} too short to judge: less than {DRIFT_RESOLUTION} × the"
            f" resolution of the clock, or {round(1 / DRIFT_FINE)} × the overhead of starting and ending one"
        )
    if parts:
        partly = f"{formatting.count(parts, 'command buffer')} only partly timed"
        return f"{partly}; no timed dispatch lies outside of its command buffer" if inside else partly
    return "no command buffer has both its own times and timed dispatches"


def _usual_interval(columns: Columns, times: SubmissionTimes, chosen: Flags) -> Floats:
    """For every chosen submission the median interval of its list on its device; 0 for the others."""
    usual = np.zeros(len(columns.submissions))
    for rows in runs_by_list(columns, chosen):
        usual[rows] = median(times.interval_ns[rows])
    return usual


def _drift_cause(signed: float, outside: Ints) -> str:
    if signed < 0 or outside.any():
        return "suspect the clocks: dispatches lie outside of their command buffer, so device and host time disagree"
    return (
        "suspect time that no sample covers: dispatches that were not sampled or dropped, work before the first or"
        " after the last dispatch, or a preempted device"
    )


# --- perturbation --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Perturbation:
    """What sampling cost."""

    check: Check
    probes: int
    """Submissions left unsampled for comparison."""
    ratio: Interval | None = None
    """Time of sampled over unsampled submissions, by medians of the same plans; None when not measured."""
    sampled: int = 0
    """Submissions they were compared with."""
    estimate: float | None = None
    """The overhead as a part of the time, from the calibrated cost of a timestamp, where it was not measured."""


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
        sentence = "no dispatch was sampled, so there is no overhead"
        return Perturbation(Check("perturbation", Status.NOT_JUDGED, sentence), probes)
    few = "no replay ran unsampled"
    if probes:
        few = f"only {formatting.count(probes, 'replay')} ran unsampled, {_MIN_PROBES} of each list are needed"
    estimate = _estimate(columns, times)
    if estimate is None:
        sentence = f"{few}, and the cost of a timestamp was not calibrated on this device"
        return Perturbation(Check("perturbation", Status.NOT_JUDGED, sentence), probes)
    slower = formatting.percent(estimate)
    sentence = f"{few}; estimated from the cost of a timestamp: about {slower} slower with sampling"
    status = Status.NOTED if estimate > PERTURBATION_FINE else Status.NOT_JUDGED
    if estimate > PERTURBATION_ERROR:
        status = Status.ERROR
        sentence += f": {_TOO_MUCH}"
    return Perturbation(Check("perturbation", status, sentence), probes, estimate=estimate)


def _measured(pairs: list[tuple[Floats, Floats]], probes: int) -> Perturbation:
    generator = np.random.default_rng(0)
    weights = [sampled.size + bare.size for sampled, bare in pairs]
    above = sum(w * median(sampled) for w, (sampled, _) in zip(weights, pairs, strict=True))
    below = sum(w * median(bare) for w, (_, bare) in zip(weights, pairs, strict=True))
    drawn_above = sum(w * bootstrap_medians(s, generator) for w, (s, _) in zip(weights, pairs, strict=True))
    drawn_below = sum(w * bootstrap_medians(b, generator) for w, (_, b) in zip(weights, pairs, strict=True))
    low, high = percentiles(np.asarray(drawn_above / drawn_below), (2.5, 97.5))
    ratio = Interval(above / below, low, high)
    sampled, unsampled = (sum(len(pair[side]) for pair in pairs) for side in (0, 1))
    reach = f"95 % interval {ratio.low:.3f} to {ratio.high:.3f}"
    sentence = (
        f"sampled replays took {ratio.estimate:.3f} × as long as unsampled ones"
        f" ({reach}; {sampled:,} sampled, {unsampled:,} unsampled)"
    )
    status = Status.FINE
    if ratio.low > 1 + PERTURBATION_ERROR:
        status = Status.ERROR
        sentence += f": {_TOO_MUCH}"
    elif ratio.high < PERTURBATION_LOW:
        status = Status.ERROR
        sentence += ": sampling cannot make work faster, so the two groups are not comparable"
    elif ratio.estimate > 1 + PERTURBATION_FINE and 1.0 not in ratio:
        status = Status.NOTED
    elif ratio.high - ratio.low > 2 * PERTURBATION_ERROR:
        status = Status.NOTED
        sentence += ": too noisy to tell"
    return Perturbation(Check("perturbation", status, sentence), probes, ratio, sampled)


def _estimate(columns: Columns, times: SubmissionTimes) -> float | None:
    cost = np.array([d.timestamp_cost_ns if d.timestamp_cost_ns is not None else np.nan for d in columns.devices])
    device = columns.submissions.device
    chosen = (times.sampled > 0) & (times.interval_ns > 0)
    chosen &= ~np.isnan(cost[device]) if cost.size else False
    if not chosen.any():
        return None
    # The cost of sampling a dispatch is part of the measured interval.
    spent = float((cost[device[chosen]] * times.sampled[chosen]).sum())
    whole = float(times.interval_ns[chosen].sum())
    # A cost that exceeds the whole was calibrated on a slower machine; sampling is still most of the time.
    return spent / max(whole - spent, 0.01 * whole)


# --- the rest ------------------------------------------------------------------------------------------------


def uncounted_submissions(columns: Columns) -> int:
    """How many submissions are missing, by the ordinals of the others, beyond those that were counted as lost."""
    counted = sum(drop.count for drop in columns.drops if drop.where.startswith(_LOST_SUBMISSIONS))
    return max(columns.missing_submissions - counted, 0)


def drops(columns: Columns) -> Check:
    """Whether anything was lost: counted drops, and gaps in the ordinals of the submissions."""
    total, uncounted = sum(drop.count for drop in columns.drops), uncounted_submissions(columns)
    unfinished = "" if columns.closed else "the recording was not closed: its last second may be missing"
    if total + uncounted == 0:
        return Check("drops", Status.NOTED if unfinished else Status.FINE, unfinished or "nothing was dropped")
    parts = []
    if total:
        where = ", ".join(f"{drop.count:,} {drop.where}" for drop in columns.drops if drop.count)
        parts.append(f"{total:,} dropped ({where})")
    if uncounted:
        parts.append(f"{formatting.count(uncounted, 'command buffer')} missing, by the ordinals of the others")
    sentence = f"{'; '.join(parts)}: counts and totals are too low"
    many = total > 0.01 * (len(columns.samples) + total)
    many |= uncounted > 0.01 * (len(columns.submissions) + uncounted)
    sentence += f"; {unfinished}" if unfinished else ""
    return Check("drops", Status.ERROR if many else Status.NOTED, sentence)


def clock(columns: Columns) -> Check:
    """Whether the clocks are precise enough for the timed dispatches."""
    known = [d for d in columns.devices if d.clock_uncertainty_ns is not None]
    if not known:
        return Check("clock", Status.NOT_JUDGED, "the uncertainty of the clocks was not recorded")
    worst = max(d.clock_uncertainty_ns or 0.0 for d in known)
    step = max(_resolution_ns(d) for d in known)
    sentence = f"host and device time agree to ±{formatting.time(worst)}"
    if step != worst:
        sentence += f"; the resolution of the device clock is {formatting.time(step)}"
    samples = columns.samples
    bounded = int((samples.status == BOUNDED).sum())
    if bounded:
        short = formatting.count(bounded, "dispatch", "dispatches")
        sentence += f"; {short} shorter than the resolution of the clock, or timed together with others"
    good = samples.status != UNAVAILABLE
    if not good.any():
        return Check("clock", Status.NOT_JUDGED, f"{sentence}; no dispatch was timed")
    shortest = float(np.mean(samples.end_ns[good] - samples.start_ns[good] < step))
    if shortest > 0.1 or bounded > 0.1 * good.sum():
        sentence += f"; {formatting.percent(shortest)} of the dispatches are shorter: their times are imprecise"
        return Check("clock", Status.NOTED, sentence)
    return Check("clock", Status.FINE, sentence)


def _shortest_judged_ns(device: Device) -> float:
    """The shortest command buffer that is judged: below it, the clock or its own start and end would look like drift.

    Only the device's clock counts here: lengths do not depend on how it maps to the host's.
    """
    return max(DRIFT_RESOLUTION * _resolution_ns(device), device.edges_ns / DRIFT_FINE)


def _resolution_ns(device: Device) -> float:
    """The shortest time that the clock of a device distinguishes from zero."""
    return (device.clock_uncertainty_ns or 0.0) if device.timer_step_ns is None else device.timer_step_ns


def repetitions(columns: Columns) -> Check:
    """How often the same work ran: a single run says nothing about the spread."""
    subs = columns.submissions
    ran = subs.plan[subs.ran & (subs.plan >= 0)]
    if ran.size == 0:
        return Check("repetitions", Status.NOT_JUDGED, "nothing ran")
    counts = np.bincount(ran)
    counts = counts[counts > 0]
    often = int((counts >= 5).sum())
    work = f"{formatting.count(ran.size, 'submission')} of {formatting.count(counts.size, 'command list')}"
    if counts.size == 1 or often == counts.size:
        least = f", each ran at least {int(counts.min()):,} times" if counts.size > 1 else ""
        sentence = f"{work}{least}" if ran.size > 1 else "the only command list ran once"
    else:
        sentence = f"{work}; {often:,} of them ran five times or more"
    covered = float(counts[counts >= 5].sum()) / float(ran.size)
    if covered >= 0.5:
        return Check("repetitions", Status.FINE, sentence)
    return Check("repetitions", Status.NOTED, f"{sentence}: too few to tell how much times vary")


def warm_up(columns: Columns, times: SubmissionTimes, first: Flags) -> Check:
    """How much slower first runs were, and where they are excluded."""
    if not columns.submissions.ran.any():
        return Check("warm-up", Status.NOT_JUDGED, "nothing ran")
    if not first.any():
        return Check("warm-up", Status.NOTED, "no command list ran three times, so no first run was excluded")
    subs = columns.submissions
    plans = subs.plan[first]
    rest = subs.ran & ~first & np.isin(subs.plan, plans)
    count = int(first.sum())
    slower = float(times.interval_ns[first].sum()) / count
    usual = float(times.interval_ns[rest].mean()) if rest.any() else np.nan
    excluded = formatting.count(count, "first run")
    sentence = f"{excluded} excluded from suspects, critical path and checks, but included in the tables"
    if usual > 0:
        sentence += f"; {'it' if count == 1 else 'they'} took {slower / usual:.2f} × as long as later runs"
    heavy = float(times.interval_ns[first].sum()) > 0.1 * float(times.interval_ns[subs.ran].sum())
    if usual > 0 and slower > 1.5 * usual and heavy:
        return Check("warm-up", Status.NOTED, f"{sentence}: this affects totals and means, hardly medians")
    return Check("warm-up", Status.FINE, sentence)


def host_cost(columns: Columns) -> Check:
    """The profiling overhead on the program's own threads."""
    known = [origin.profile_ns for origin in columns.origins if origin.profile_ns is not None]
    count = len(columns.submissions)
    if not known or len(known) < len(columns.origins) or not count:
        return Check("host", Status.NOT_JUDGED, "the profiling overhead on the host was not recorded")
    spent_ns = sum(known)
    each = f"{formatting.time(spent_ns / count)} per command buffer on the host, {formatting.time(spent_ns)} in total"
    sentence = f"profiling overhead: {each}; idle time of the device may include it"
    subs = columns.submissions
    span_ns = float(subs.end_ns[subs.ran].max() - subs.start_ns[subs.ran].min()) if subs.ran.any() else 0.0
    return Check("host", Status.NOTED if spent_ns > _MUCH_HOST_TIME * span_ns else Status.FINE, sentence)


def measured(columns: Columns, times: SubmissionTimes) -> Check:
    """Which command buffers have no times, or not all, and why."""
    subs = columns.submissions
    if len(subs) == 0:
        return Check("measured", Status.NOT_JUDGED, "nothing was recorded")
    # A command buffer may have times while its dispatches, which were asked for, have none. Failures are named apart.
    lacking = ((subs.status != "measured") | (subs.reason != "")) & (subs.error == "")
    reasons = Counter(reason or "no reason given" for reason in subs.reason[lacking].tolist())
    failed = [error for error in subs.error.tolist() if error]
    bare = int((subs.sampled & (times.sampled == 0) & (subs.error == "") & ~lacking).sum())
    if not (reasons or failed or bare):
        count = formatting.count(int((times.sampled > 0).sum()), "command buffer")
        sentence = f"dispatches were timed in {count}" if (times.sampled > 0).any() else "command buffers only"
        if some := int(partly_timed(columns).sum()):
            sentence += f", of which {some:,} only partly, because dispatches take turns"
        return Check("measured", Status.FINE, sentence)
    parts = [f"{formatting.count(n, 'command buffer')} without all times: {why}" for why, n in reasons.most_common(3)]
    if failed:
        parts.append(f"{formatting.count(len(failed), 'command buffer')} failed: {failed[0]}")
    if bare:
        parts.append(f"{formatting.count(bare, 'command buffer')} without any timed dispatch")
    return Check("measured", Status.NOTED, "; ".join(parts))
