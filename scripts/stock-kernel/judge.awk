# Judges the expectations of a scenario by the summaries of its runs, also of runs that were not valid
# because a CPU was busy. Input: results.json, split at , { } [ and ] into lines.
# Output per expectation: `mechanism::says|ok (…)` or `…|FAILED (…)`.

function value(line) {
	sub(/^"[^"]*":/, "", line)
	gsub(/"/, "", line)
	return line
}

/^"mechanism":/ { mechanism = value($0) }
/^"metric":/ { metric = value($0) }
/^"says":/ { says = value($0) }
/^"at_least":/ { least = value($0) }
/^"at_most":/ { most = value($0) }

# A run's summary: `"goodput_of_floor.x":1.003`.
/^"[a-z_0-9]+(\.[a-z]+)?":-?[0-9]/ {
	split($0, part, "\"")
	got[mechanism, part[2]] = value($0)
}

# The last field of an expectation.
/^"held":/ {
	key = mechanism SUBSEP metric
	ok = key in got && (least == "null" || got[key] >= least + 0) && (most == "null" || got[key] <= most + 0)
	number = key in got ? sprintf("%.3f", got[key]) : "nothing"
	gsub(/ /, "_", says)
	wanted = (least == "null" ? "" : " >= " least) (most == "null" ? "" : " <= " most)
	print mechanism "::" says "|" (ok ? "ok" : "FAILED") " (" metric " " number ", wanted" wanted ")"
}
