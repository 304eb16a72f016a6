# Whether this machine had its CPUs to itself. Sourced by scripts that judge times and rates.
#
# A hypervisor that gives the CPUs to another machine makes every rate and every delay wrong, and leaves a
# trace: the stolen time of /proc/stat. A judgement made meanwhile is none, for or against: what failed
# then is judged again, once the machine is calm. What fails on a calm machine has failed.

# Percent of the CPU time of one second that may be taken away while something is measured: the same
# bound as for a sample of the lab.
STOLEN_MOST=10

# ticks: "STOLEN ALL", of all CPUs since the machine started.
ticks() {
	awk '/^cpu /{all = 0; for (i = 2; i <= 9; i++) all += $i; print $9, all; exit}' /proc/stat
}

# stolen_between STOLEN ALL STOLEN ALL: the percentage taken away between two readings.
stolen_between() { echo "$@" | awk '{all = $4 - $2; print (all > 0 ? int(100 * ($3 - $1) / all) : 0)}'; }

# watch FILE: writes, every second, what was taken away in it. Ends with its parent.
watch() {
	then=$(ticks)
	while sleep 1 && kill -0 "$$" 2>/dev/null; do
		now=$(ticks)
		# shellcheck disable=SC2086  # two numbers each
		stolen_between $then $now
		then=$now
	done >"$1"
}

# disturbed FILE: whether `watch` saw more than a measurement bears.
disturbed() { awk -v most="$STOLEN_MOST" '$1 > most {bad++} END {exit !bad}' "$1"; }

# worst FILE: the worst that `watch` saw, in percent.
worst() { sort -n "$1" | tail -n 1; }

# wait_for_calm SECONDS: until hardly anything was taken for ten seconds; fails if that takes longer.
wait_for_calm() {
	left=$1
	while [ "$left" -gt 0 ]; do
		calm=$(ticks)
		sleep 10
		# shellcheck disable=SC2046,SC2086
		[ "$(stolen_between $calm $(ticks))" -gt 2 ] || return 0
		left=$((left - 10))
	done
	return 1
}

# observed COMMAND…: runs it while what is taken away from this machine is written to the file $stolen;
# $status is the command's. The script that sources this ends $watcher when it is ended itself.
observed() {
	: >"$stolen"
	watch "$stolen" 2>/dev/null &
	watcher=$!
	"$@"
	status=$?
	kill "$watcher"
	watcher=
}
