"""Draws terminal screens, as `tmux capture-pane -e -p` prints them, as an SVG picture. Several screens, each after a line with a form feed
and its time in milliseconds, become a moving picture that plays in the time of the recording, without long pauses and at most a few seconds,
and then begins again."""

import html
import re
import sys

COLOURS = {30: "#5c6370", 31: "#e06c75", 32: "#98c379", 33: "#e5c07b", 34: "#61afef", 35: "#c678dd", 36: "#56b6c2", 37: "#dcdfe4"}
WIDTH, HEIGHT, LEFT, TOP = 8.4, 18, 14, 44
LAST_MS = 6000  # the last screen stays this long
PAUSE_MS = 400  # and no other one longer than this, but the first
MOST_MS = 9000  # a longer recording, such as one of a busy machine, is played faster


def spans(line):
    """The pieces of a line, each with its style."""
    colour, bold, dim = None, False, False
    for piece in re.split(r"(\x1b\[[0-9;]*m)", line):
        if not piece.startswith("\x1b["):
            if piece:
                yield piece, colour, bold, dim
            continue
        for code in (int(it or 0) for it in piece[2:-1].split(";")):
            if code == 0:
                colour, bold, dim = None, False, False
            elif code == 1:
                bold = True
            elif code == 2:
                dim = True
            elif code == 22:
                bold, dim = False, False
            elif code == 39:
                colour = None
            elif code in COLOURS or code - 60 in COLOURS:
                colour = COLOURS.get(code) or COLOURS[code - 60]


def screens(text):
    """The screens with their times, without repetitions."""
    found = []
    for part in text.split("\f") if "\f" in text else ["0\n" + text]:
        if not part.strip():
            continue
        at, _, screen = part.partition("\n")
        lines = [line.rstrip() for line in screen.rstrip("\n").split("\n")]
        while lines and not re.sub(r"\x1b\[[0-9;]*m", "", lines[-1]).strip():
            lines.pop()
        if not found or found[-1][1] != lines:
            found.append((int(at), lines))
    shortened, now = found[:1], 0
    for (before, _), (at, lines) in zip(found, found[1:]):
        now += min(at - before, 1000 if before == found[0][0] else PAUSE_MS)
        shortened.append((now, lines))
    faster = max(1, now / MOST_MS)
    return [(round(at / faster), lines) for at, lines in shortened]


def draw(lines):
    for row, line in enumerate(lines):
        column = 0
        for text, colour, bold, dim in spans(line):
            style = (f' fill="{colour}"' if colour else "") + (' font-weight="bold"' if bold else "") + (' opacity="0.65"' if dim else "")
            x, y = LEFT + column * WIDTH, TOP + row * HEIGHT
            if text.strip():
                print(f'<text x="{x:.1f}" y="{y}" textLength="{len(text) * WIDTH:.1f}"{style}>{html.escape(text).replace(" ", chr(160))}</text>')
            column += len(text)


frames = screens(sys.stdin.read())
rows = max(len(lines) for _, lines in frames)
width, height = 100 * WIDTH + 2 * LEFT, rows * HEIGHT + TOP + 14
print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" role="img" aria-label="a run of homing in a terminal">')
print('<rect width="100%" height="100%" rx="8" fill="#21252b"/>')
for at, fill in enumerate(["#e06c75", "#e5c07b", "#98c379"]):
    print(f'<circle cx="{20 + at * 20}" cy="18" r="6" fill="{fill}"/>')
print('<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14" fill="#dcdfe4" xml:space="preserve">')
end = frames[-1][0] + LAST_MS
for at, (start, lines) in enumerate(frames):
    stop = frames[at + 1][0] if at + 1 < len(frames) else end
    if len(frames) == 1:
        draw(lines)
        continue
    # A screen is shown from its time to that of the next one; without animation the last one is shown.
    times = [0, start / end, stop / end]
    keys = {0: "none"}
    keys[start / end] = "inline"
    if stop < end:
        keys[stop / end] = "none"
    times = ";".join(f"{time:.4f}" for time in keys)
    values = ";".join(keys.values())
    shown = "inline" if stop == end else "none"
    print(f'<g display="{shown}"><animate attributeName="display" calcMode="discrete" dur="{end / 1000:.2f}s" repeatCount="indefinite" keyTimes="{times}" values="{values}"/>')
    draw(lines)
    print("</g>")
print("</g></svg>")
