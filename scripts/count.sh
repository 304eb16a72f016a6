# Checks and tests, counted. Sourced by scripts/test and scripts/test-long.

log=$(mktemp)
child=
trap 'rm -f "$log"' EXIT
# What runs in the background has a process group of its own, which Ctrl-C in a terminal does not reach.
trap '[ -n "$child" ] && kill "$child" 2>/dev/null; exit 130' INT TERM
passed=0 failed=0 failures=

say() { printf '\n== %s, after %d s\n' "$*" "$(($(date +%s) - began))"; }
began=$(date +%s)

# check NAME COMMAND…: one check that passes or fails as a whole.
check() {
	name=$1
	shift
	say "$name"
	if "$@"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		fails "$name"
	fi
}

# count NAME COMMAND…: adds up lines like `test result: ok. 3 passed; 1 failed` of the command's output,
# which is shown as it comes.
count() {
	name=$1
	shift
	say "$name"
	: >"$log"
	tail -f "$log" --pid=$$ 2>/dev/null &
	shown=$!
	"$@" >"$log" 2>&1 &
	child=$!
	wait "$child"
	status=$?
	child=
	sleep 1
	kill "$shown" 2>/dev/null
	ok=$(sed -n 's/^test result: .* \([0-9]*\) passed.*/\1/p' "$log" | sum)
	bad=$(sed -n 's/^test result: .* \([0-9]*\) failed.*/\1/p' "$log" | sum)
	# A command that fails without a failed test did not compile, or was killed, or hung.
	[ "$status" != 0 ] && [ "$bad" = 0 ] && bad=1 && fails "$name ended with status $status"
	# And one that tests nothing is no test.
	[ "$status" = 0 ] && [ "$ok" = 0 ] && bad=1 && fails "$name ran no test"
	names=$(sed -n 's/^ *test \(.*\) \.\.\. \(FAILED.*\)$/\1: \2/p' "$log" | sort -u)
	[ -z "$names" ] || failures="$failures$names
"
	passed=$((passed + ok)) failed=$((failed + bad))
}

# fails WHAT: says it now, and again at the end.
fails() {
	echo "FAILED: $1"
	failures="$failures$1
"
}

sum() { awk '{all += $1} END {print all + 0}'; }

# finish: what failed, the line that says it all, and the status.
finish() {
	[ -z "$failures" ] || printf '\nFailed:\n%s\n' "$failures"
	printf '\n%d s\n%d passed, %d failed\n' "$(($(date +%s) - began))" "$passed" "$failed"
	[ "$failed" = 0 ]
}
