#!/bin/bash
# Runs one fuzzer (a libFuzzer binary):
#   run.sh FUZZER                        the test: so many runs as runs.list says, from a fixed seed; the same each time
#   run.sh FUZZER search FOUND SECONDS   looks for new inputs and keeps them in the folder FOUND
#   run.sh FUZZER keep FOUND             adds to the seeds those of FOUND that reach new code
# An input that fails is left in build/fuzz/crashes; FUZZER FILE runs it again.
set -euo pipefail
fuzzer=$(realpath "$1") mode=${2:-test} found=${3:-}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
name=$(basename "$fuzzer")
crashes=$(dirname "$(dirname "$(dirname "$fuzzer")")")/crashes
mkdir -p "$crashes"

row=$(awk -v name="$name" '$1 == name' tests/fuzz/runs.list)
[[ -n $row ]] || { echo "$name has no row in tests/fuzz/runs.list"; exit 1; }
read -r _ runs bytes more <<<"$row"
seeds=()
for folder in "tests/fuzz/$name" $more; do
    [[ -d $folder ]] && seeds+=("$folder")
done
[[ ${#seeds[@]} -gt 0 ]] || { echo "$name has no seeds: tests/fuzz/$name"; exit 1; }
# Containers that cross the border to Debian's plain libraries look overflown when they are not.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_container_overflow=0}
options=(-max_len="$bytes" -timeout=20 -rss_limit_mb=2048 -artifact_prefix="$crashes/$name.")
if [[ -e tests/fuzz/$name.dict ]]; then options+=(-dict="tests/fuzz/$name.dict"); fi

case $mode in
    test)
        # New inputs are written to the first folder, so the seeds are not the first.
        scratch=$(mktemp -d /tmp/stockade-fuzz.XXXXXX)
        trap 'rm -rf "$scratch"' EXIT
        "$fuzzer" "${options[@]}" -runs="$runs" -seed=1 -print_final_stats=1 "$scratch" "${seeds[@]}" ;;
    search) "$fuzzer" "${options[@]}" -max_total_time="$4" -print_final_stats=1 "$found" "${seeds[@]}" 2>&1 | tail -n 30 ;;
    keep)
        mkdir -p "tests/fuzz/$name"
        # By code reached, not by how often, and small ones: a folder of thousands of files is nobody's to look at.
        "$fuzzer" "${options[@]}" -max_len=1024 -use_counters=0 -set_cover_merge=1 "tests/fuzz/$name" "$found" 2>&1 | tail -n 1 ;;
    *) echo "run.sh: unknown mode $mode"; exit 2 ;;
esac
