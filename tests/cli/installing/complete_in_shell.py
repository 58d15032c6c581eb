"""Sends keys to a shell on a terminal, Tab among them: complete_in_shell.py bash|zsh KEYS...

Prints, for each KEYS, in one shell: what was shown meanwhile (two Tabs list the candidates), and the line at the end,
after "line:".
"""

import os
import pty
import re
import select
import sys
import time

SETUP = {
    "bash": ". scripts/completion/aoticache.bash; bind 'set enable-bracketed-paste off'; bind 'set page-completions off'; "
    "bind 'set completion-query-items 0'; bind 'set bell-style none'; PS1='<>'",
    "zsh": "fpath=($PWD/scripts/completion $fpath); autoload -Uz compinit; compinit -u -D; zstyle ':completion:*' menu no; "
    "unsetopt zle_bracketed_paste prompt_cr prompt_sp list_beep beep auto_menu; LISTMAX=0; PS1='<>'; PROMPT_EOL_MARK=",
}
START = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}


def read_until(terminal: int, wanted: bytes, seconds: float) -> bytes:
    seen, end = b"", time.monotonic() + seconds
    while time.monotonic() < end and not (wanted and wanted in seen):
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:
                break
    return seen


def main(shell: str, *all_keys: str) -> None:
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(TERM="dumb", HISTFILE="")
        os.execvp(START[shell][0], START[shell])
    os.write(terminal, (SETUP[shell] + "; echo re''ady\n").encode())
    read_until(terminal, b"ready\r\n<>", 30)
    for keys in all_keys:
        # The next keys take effect after the Tabs: Ctrl-A, and a printf before the line, which becomes its argument, so
        # that the shell itself prints the line.
        os.write(terminal, keys.encode())
        os.write(terminal, b"\x01printf 'line:%s:e''nd\\n' '\x05'\n")
        shown = read_until(terminal, b":end\r\n", 30)
        print(shown.decode(errors="replace").replace("\r\n", "\n").partition("<>printf")[0])
        found = re.findall(rb"line:(.*):end", shown)
        print("line:" + found[-1].decode() if found else "line?")
    os.write(terminal, b"exit\n")
    os.close(terminal)
    os.waitpid(process, 0)


main(*sys.argv[1:])
