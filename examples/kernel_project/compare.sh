#!/bin/sh
# Is a kernel of this folder slower than in another checkout of it?   ./compare.sh ../old
# Both take turns, so that what changes on the machine meanwhile meets both alike. The last run has the verdict.
set -eu
new=$(cd "$(dirname "$0")" && pwd)
old=$(cd "$1" && pwd)
recordings=$(mktemp -d)
bench() {
    cd "$1"
    shift
    python -m pytest tests/test_speed.py -q --ostinato-dir "$recordings" "$@"
}
for turn in 1 2 3 4; do
    bench "$old" --ostinato-save old
    bench "$new" --ostinato-save new
done
bench "$old" --ostinato-save old
bench "$new" --ostinato-save new --ostinato-compare old --ostinato-fail-slower 5%
