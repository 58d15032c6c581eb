#!/usr/bin/env bash
# The manual pages of the library: each prototype is that of the header (of an exported or an inline function), and each
# function's page or link is installed.
. tests/cli/lib.sh

# Prints "NAME PROTOTYPE" for the declarations in headers (first argument: headers) or in the pages (pages).
prototypes() {
    python3 - "$1" <<'PYTHON'
import glob, re, sys
squeeze = lambda text: re.sub(r"\s*([(),*])\s*", r"\1", " ".join(text.split()))
found = set()
if sys.argv[1] == "headers":
    for name in glob.glob("*/**/*.h", recursive=True):
        if not name.startswith(("build/", "tests/")):
            text = open(name).read()
            exported = re.findall(r"^AOTICACHE_API ([^;{}]*\))[^;{}()]*(?:AOTICACHE_PRINTF[^;]*)?;", text, re.M)
            inline = re.findall(r"^static inline ([^;{}]*\))\s*\{", text, re.M)
            found.update(squeeze(prototype) for prototype in exported + inline)
else:
    for name in glob.glob("docs/man/*.3"):
        page = open(name).read()
        for text in re.findall(r'((?:^\.BI ".*"\n)+)', page, re.M):
            joined = " ".join(re.findall(r'^\.BI "(.*)"$', text, re.M)).replace("\\-", "-")
            found.add(squeeze(joined.rstrip(";")))
print("\n".join(sorted(found)))
PYTHON
}
prototypes headers >"$work/headers"
prototypes pages >"$work/pages"
holds 'the pages have prototypes' [ "$(wc -l <"$work/pages")" -ge 40 ]
is 'each is the header'"'"'s' '' "$(LC_ALL=C comm -13 "$work/headers" "$work/pages")"

stage=$work/stage
try 'the pages are installed' 0 install_to "$stage" /usr
missing=
for name in $(grep -oE 'aoticache_[a-z_]+\(' "$work/pages" | tr -d '(' | sort -u); do
    [ -s "$stage/usr/share/man/man3/$name.3" ] || missing="$missing $name"
done
is 'each function has a page, or a link to one' '' "$missing"
holds 'and so has the library' [ -s "$stage/usr/share/man/man3/aoticache.3" ]
try 'they are uninstalled' 0 uninstall_from "$stage" /usr
is 'and none is left' '' "$(find "$stage" -name '*.3')"
finish
