"""From timed submissions to a recording, and from a recording to a report."""
