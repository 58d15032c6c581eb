#!/usr/bin/env bash
# Installed files for operators: completions of the shells, units for systemd, the line for cron, man pages.
. tests/cli/lib.sh

aoticache run aten::abs --input float32:2 --hook c --quiet >/dev/null || not_ok 'set-up' 'run failed'
key=$(aoticache ls --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["entries"][0]["key"][:12])')

aoticache run aten::add.Tensor --input float32:2 --input float32:2 --hook c --quiet >/dev/null || not_ok 'set-up' 'run failed'

# ---- bash and zsh, each on its own terminal, in which Tab is pressed ----

for shell in bash zsh; do
    command -v $shell >/dev/null || { skip "$shell completes" "there is no $shell"; continue; }
    run python3 tests/cli/installing/complete_in_shell.py $shell $'aoticache unp\t' $'aoticache ls --so\t' $'aoticache-gc --max-a\t' \
        $'aoticache show \t\t\t' $'aoticache ls aten::ab\t' $'aoticache du --by \t\t' $'aoticache-gc --policy=co\t' \
        $'aoticache config max_s\t' $'aoticache ls -s si\t' $'aoticache help troub\t'
    prints "$shell completes commands" '^line:aoticache unpin ?$'
    prints "$shell completes options of a command" '^line:aoticache ls --sort ?$'
    prints "$shell completes options of aoticache-gc" '^line:aoticache-gc --max-age ?$'
    prints "$shell completes keys" "(^| )$key( |\$)"
    prints "$shell completes operators, which have colons" '^line:aoticache ls aten::abs ?$'
    prints "$shell completes values" 'device +operator +producer +tag'
    prints "$shell completes values after =" '^line:aoticache-gc --policy=cost ?$'
    prints "$shell completes values after a letter" '^line:aoticache ls -s size ?$'
    prints "$shell completes topics" '^line:aoticache help trouble ?$'
    prints "$shell completes settings" '^line:aoticache config max_size ?$'
done

# ---- fish ----

if command -v fish >/dev/null; then
    mkdir "$work/fish" # fish keeps files in the home
    complete_fish() { HOME=$work/fish fish -c "source scripts/completion/aoticache.fish; complete -C '$1'"; }
    run complete_fish 'aoticache ru'
    prints 'fish completes commands' '^run'
    run complete_fish 'aoticache ls --s'
    prints 'fish completes options of a command' '^--sort'
    run complete_fish 'aoticache show '
    prints 'fish completes keys' "^$key"
    run complete_fish 'aoticache ls aten::ab'
    prints 'fish completes operators' '^aten::abs'
    run complete_fish 'aoticache du --by '
    prints 'fish completes values' '^operator'
    run complete_fish 'aoticache-gc --policy=co'
    prints 'fish completes values after =' '^--policy=cost'
    run complete_fish 'aoticache config max_s'
    prints 'fish completes settings' '^max_size'
else
    skip 'fish completes' 'there is no fish'
fi

# ---- installed and uninstalled files ----

stage=$work/stage
try 'what is built is installed' 0 install_to "$stage" /usr
for file in lib/systemd/user/aoticache-gc.service lib/systemd/user/aoticache-gc.timer \
    lib/systemd/system/aoticache-gc@.service lib/systemd/system/aoticache-gc@.timer \
    lib/systemd/user/aoticache-stat.service lib/systemd/user/aoticache-stat.timer \
    lib/systemd/system/aoticache-stat@.service lib/systemd/system/aoticache-stat@.timer \
    share/bash-completion/completions/aoticache-stat share/zsh/site-functions/_aoticache \
    share/fish/vendor_completions.d/aoticache-gc.fish share/doc/aoticache/crontab.example \
    share/doc/aoticache/aoticache.conf.example share/man/man1/aoticache-gc.1 \
    share/doc/aoticache/aoticache-rules.yml share/doc/aoticache/licenses/pocketfft.txt share/man/man5/aoticache.conf.5; do
    holds "installs $file" [ -s "$stage/usr/$file" ]
done
run grep -h ExecStart "$stage/usr/lib/systemd/user/aoticache-gc.service" "$stage/usr/lib/systemd/system/aoticache-gc@.service"
prints 'the units name the installed program' "^ExecStart=/bin/sh -c 'exec /usr/bin/aoticache-gc --cache-dir="
prints_not 'no place is left open' '@bindir@'
run grep -h ExecStart "$stage/usr/lib/systemd/user/aoticache-stat.service" "$stage/usr/lib/systemd/system/aoticache-stat@.service"
prints 'as do those of aoticache-stat' "^ExecStart=/bin/sh -c 'exec /usr/bin/aoticache-stat --cache-dir="
prints_not 'no place is left open there' '@bindir@'

if command -v systemd-analyze >/dev/null; then
    # The check needs the program: the units are checked with the one that was built.
    mkdir "$work/units"
    for unit in "$stage"/usr/lib/systemd/user/* "$stage"/usr/lib/systemd/system/*; do
        sed "s|/usr/bin/aoticache|$BUILD/bin/aoticache|g; /^Documentation=man:/d" "$unit" >"$work/units/${unit##*/}"
    done
    for unit in "$work"/units/aoticache-{gc,stat}; do
        sed -i "s/^User=%i/User=$(id -un)/" "$unit@.service"
        cp "$unit@.service" "$unit@x.service"
    done
    run systemd-analyze verify --man=no "$work"/units/aoticache-{gc,stat}.{service,timer} \
        "$work"/units/aoticache-{gc,stat}@x.service
    is 'systemd finds nothing wrong with the units' '' "$(grep -i 'aoticache' "$err" || true)"
else
    skip 'systemd finds nothing wrong with the units' 'there is no systemd-analyze'
fi
# Runs the commands of the units and of cron as a user's service manager and cron do: without the variables of a shell.
started() { # HOME LINE
    env -i HOME="$1" PATH=/usr/bin:/bin AOTICACHE_CONFIG="$work/service.conf" TEXTFILES="$work" bash -c "$2"
}
commands_of() { # of a kind of unit, with systemd's substitutions
    sed -n 's/^ExecStart=//p' "$stage"/usr/lib/systemd/*/"aoticache-$1"*.service |
        sed "s|/usr/bin/aoticache|$BUILD/bin/aoticache|g; s/[$][$]/$/g; s/%[iu]/x/g"
}
cron_lines() { # PATTERN: lines with it, without the time
    sed -nE "/^#?[0-9].*$1/{s|/usr/bin/aoticache|$BUILD/bin/aoticache|g; s/^#?17 3 [*] [*] [*]  //p}" \
        "$stage/usr/share/doc/aoticache/crontab.example"
}
mkdir -p "$work/ann/.cache" "$work/new"
cp -r "$AOTICACHE_DIR" "$work/ann/.cache/aoticache"
is 'there are two units for each program' 2:2 "$(commands_of gc | wc -l):$(commands_of stat | wc -l)"
cron_lines HOME >"$work/cron"
is 'and a line for cron' 1 "$(wc -l <"$work/cron")"
while IFS= read -r line; do
    : >"$work/service.conf"
    try "it looks at the default directory: $line" 0 started "$work/ann" "$line"
    is 'and says nothing' '' "$(cat "$out" "$err")"
    try 'a directory that is not there is a failure' 7 started "$work/new" "$line"
    says 'that is said, with the place' "the cache directory $work/new/.cache/aoticache does not exist"
    [[ $line != *config* ]] || {
        printf 'directory = %s\n' "$AOTICACHE_DIR" >"$work/service.conf"
        try 'the configuration may name another' 0 started "$work/new" "$line"
    }
done < <(commands_of gc && commands_of stat && cat "$work/cron")
holds 'the file for Prometheus is written' [ -s "$work/aoticache-x.prom" ]

# All users of a machine: root's line, here with other homes.
if [ "$(id -u)" = 0 ]; then
    chmod 755 "$work"
    for user in 10003 10004; do
        mkdir -p "$work/homes/$user/.cache"
        cp -r "$AOTICACHE_DIR" "$work/homes/$user/.cache/aoticache"
        chown -R $user "$work/homes/$user"
    done
    mkdir "$work/homes/without"
    line=$(cron_lines root | sed "s|^root  ||; s|/home/|$work/homes/|; s|/root/|$work/homes/none/|")
    printf 'max_entries = 1\n' >"$work/service.conf"
    try "each user's cache is collected: $line" 0 started /root "$line"
    is 'quietly' '' "$(cat "$out" "$err")"
    for user in 10003 10004; do
        run aoticache ls --json --quiet --cache-dir "$work/homes/$user/.cache/aoticache"
        is "user $user: it was" 1 "$(grep -c '"key"' "$out")"
        is "user $user: all of it is theirs still" '' "$(find "$work/homes/$user" ! -uid $user)"
    done
else
    skip "each user's cache is collected" 'only root can'
fi

# ---- Prometheus ----

export AOTICACHE_MAX_SIZE=1G AOTICACHE_MAX_ENTRIES=1000 AOTICACHE_MAX_AGE=90d AOTICACHE_MIN_FREE=1%
aoticache-stat --quiet --prometheus="$work/stat.prom" --by operator
aoticache-gc --quiet --prometheus "$work/gc.prom"
unset AOTICACHE_MAX_SIZE AOTICACHE_MAX_ENTRIES AOTICACHE_MAX_AGE AOTICACHE_MIN_FREE
run sed -E 's/directory="[^"]*",?//' "$work/stat.prom"
prints 'the limit of bytes' '^aoticache_limit_bytes\{\} 1073741824$'
prints 'of entries' '^aoticache_limit_entries\{\} 1000$'
prints 'of ages' '^aoticache_limit_age_seconds\{\} 7776000$'
prints 'of free space' '^aoticache_limit_free_bytes\{\} [1-9][0-9]*$'
version=$(aoticache-stat --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)
prints 'the version' "^aoticache_build_info\{program=\"aoticache-stat\",version=\"$version\"\} 1\$"
run sed -E 's/directory="[^"]*",?//' "$work/gc.prom"
prints 'the limit of bytes of a run' '^aoticache_gc_limit_bytes\{\} 1073741824$'
prints 'of entries of a run' '^aoticache_gc_limit_entries\{\} 1000$'
prints 'of ages of a run' '^aoticache_gc_limit_age_seconds\{\} 7776000$'
prints 'of free space of a run' '^aoticache_gc_limit_free_bytes\{\} [1-9][0-9]*$'
prints 'the version that ran' "^aoticache_build_info\{program=\"aoticache-gc\",version=\"$version\"\} 1\$"
# The node exporter rejects both files if a sample is in both, and warns if a help text differs.
is 'no sample is in both files' '' "$(cat "$work"/{stat,gc}.prom | grep -v '^#' | sed 's/ [^ ]*$//' | sort | uniq -d)"
is 'nor has a name two helps' '' "$(cat "$work"/{stat,gc}.prom | grep '^# HELP' | sort -u | cut -d' ' -f3 | uniq -d)"
AOTICACHE_MAX_SIZE=0 run aoticache-stat --prometheus
prints_not 'what has no limit has no sample' '^aoticache_limit_'
missing=
for name in $(grep -oE '\baoticache_[a-z_]+' scripts/service/aoticache-rules.yml | sort -u); do
    cat "$work"/{stat,gc}.prom | grep -q "^$name[{ ]" || missing="$missing $name"
done
is 'the alerts ask for figures that there are' '' "$missing"
if command -v promtool >/dev/null; then
    for file in stat gc; do
        promtool check metrics <"$work/$file.prom" >"$out" 2>&1
        is "promtool finds nothing wrong with what aoticache-$file writes" '0:' "$?:$(cat "$out")"
    done
    cp scripts/service/aoticache-rules.yml tests/cli/installing/prometheus_rules.yml "$work"
    try 'promtool reads the alerts' 0 promtool check rules "$work/aoticache-rules.yml"
    try 'each is raised by what it is for' 0 promtool test rules "$work/prometheus_rules.yml"
else
    skip 'what Prometheus reads' 'there is no promtool (Debian: prometheus)'
fi

try 'it is uninstalled' 0 uninstall_from "$stage" /usr
is 'and all of it is gone' '' "$(find "$stage" -type f)"

# ---- man pages ----

if command -v mandoc >/dev/null; then
    for page in docs/man/*.[1-8]; do
        try "mandoc: ${page##*/}" 0 mandoc -T lint -W warning "$page"
    done
else
    skip 'man pages' 'there is no mandoc'
fi
for program in aoticache-gc aoticache-stat; do
    missing=
    for option in $("$program" --help all | sed -nE 's/^  (-[a-zA-Z], |    )(--[a-z-]+).*/\2/p'); do
        sed 's/\\-/-/g' "docs/man/$program.1" | grep -q -- "$option" || missing="$missing $option"
    done
    is "the page of $program has all its options" '' "$missing"
done
missing= wrong=
for setting in $(aoticache config --json | python3 -c 'import json, sys
print(*(s["name"] + "/" + s["variable"] for s in json.load(sys.stdin)["settings"]))'); do
    grep -qx ".B ${setting%/*}" docs/man/aoticache.conf.5 || missing="$missing ${setting%/*}"
    grep -q "${setting#*/}" docs/man/aoticache.conf.5 || missing="$missing ${setting#*/}"
    grep -q "\`${setting%/*}\`.*\`${setting#*/}\`" docs/configuration.md || missing="$missing configuration.md:${setting%/*}"
done
is 'the page of the configuration has all settings and their variables' '' "$missing"
for page in docs/man/aoticache*.1; do
    grep -q 'aoticache.conf (5)' "$page" || wrong="$wrong $page"
done
is 'the other pages point to it' '' "$wrong"
missing=
for command in $(aoticache help all | sed -nE '/^Commands:/,/^$/s/^  ([a-z-]+) .*/\1/p'); do
    sed 's/\\-/-/g' docs/man/aoticache.1 | grep -q "$command" || missing="$missing $command"
done
is 'the page of aoticache has all its commands' '' "$missing"

finish
