#!/usr/bin/env bash
# The short form of the trial of unusual environments (tests/environments/places.sh): a second of work in those that need no
# large disk. `make long FORMS=places` tests all of them for longer.
# Not a quick test: it is a trial of file systems.
build=${BUILD:-build}
[ -x "$build/tests/environments/place_work" ] || { echo 'skip - odd places: the test programs are not built (make tests)'; exit 77; }
limits=limits
! nm -D "$build/lib/libaoticache.so.0" | grep -qE ' __(asan|tsan)_init' || limits= # a sanitizer uses terabytes of addresses
# shellcheck disable=SC2086 # no word or one
PLACE_SECONDS=1 exec bash tests/environments/places.sh inodes blocks read_only overlay fuse crowd clock stopped $limits
