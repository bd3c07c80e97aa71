"""Damage done to small text files of traces."""

from hypothesis import strategies as st

TOKENS = [
    b",", b'"', b"\n", b"\r", b"\r\n", b"\0", b".", b"-", b"+", b" ", b"\t", b"#", b"T", b"Z", b":", b"0",
    b"1", b"9", b"e", b"_", b"\xff", b"\xef\xbb\xbf", "\u0663".encode(), b"NaN", b"00", b"+00:00", b'""',
    b"\\", b"'", b";",
]  # fmt: skip
piece = st.sampled_from(TOKENS) | st.binary(max_size=3)
edit = st.tuples(st.integers(0, 10_000), st.integers(0, 3), piece)
line_edit = st.tuples(st.sampled_from(["drop", "double", "swap"]), st.integers(0, 10), st.integers(0, 10))


def damaged(
    text: bytes, line_edits: list[tuple[str, int, int]], edits: list[tuple[int, int, bytes]]
) -> bytes:
    lines = text.splitlines(keepends=True)
    for kind, a, b in line_edits:
        if not lines:
            break
        i, j = a % len(lines), b % len(lines)
        if kind == "drop":
            del lines[i]
        elif kind == "double":
            lines.insert(j, lines[i])
        else:
            lines[i], lines[j] = lines[j], lines[i]
    text = b"".join(lines)
    for at, removed, added in edits:
        i = at % (len(text) + 1)
        text = text[:i] + added + text[i + removed :]
    return text
