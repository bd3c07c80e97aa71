"""Our CSV reader against pyarrow's: files in the formats of BurstGPT_1, the same with decimals, Azure 2024.

python -m benchmarks.arrow_csv            1.43 million rows of each
python -m benchmarks.arrow_csv 100000     so many rows of each

ours       reads and judges every row
streaming  pyarrow.csv.open_csv with explicit types and nothing else; it ends at the first cell that it cannot
           convert, so no judge of rows can be built on it
blocks     pyarrow.csv.read_csv on our blocks of whole lines, which we could judge where it rejects one, with
           a look at what pyarrow takes and we refuse; words stay codes of their block

Readings are in turn, each a fresh process: least and median CPU seconds and the most memory, imports and hash
of the file included (benchmarks/README.md).
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.command import command, count
from serving.vocabulary.errors import UserError

ROWS = 1_430_000
ROUNDS = 5
READERS = ("ours", "streaming", "blocks")
TOKENS = {"burstgpt": "Request tokens", "decimals": "Request tokens", "azure": "ContextTokens"}
_CHILD = "import sys; from benchmarks.arrow_csv import child; child(*sys.argv[1:])"
_STRANGE = (b'"', b"\0", b"0x", b"0X")


def types_of(kind: str) -> dict[str, Any]:
    """Name -> Arrow type of the columns: decimals of 18 places, words with a dictionary."""
    import pyarrow as pa

    if kind == "azure":
        return {
            "TIMESTAMP": pa.timestamp("ns", tz="UTC"),
            TOKENS[kind]: pa.int32(),
            "GeneratedTokens": pa.int32(),
        }
    numbers = {name: pa.int32() for name in (TOKENS[kind], "Response tokens", "Total tokens")}
    words = {name: pa.dictionary(pa.int32(), pa.string()) for name in ("Model", "Log Type")}
    first = {"Timestamp": pa.decimal128(38, 18), "Model": words["Model"]}
    return first | numbers | {"Log Type": words["Log Type"]}


def batches(reader: str, path: Path, types: dict[str, Any]) -> Iterator[Any]:
    """The record batches of the file."""
    from pyarrow import BufferReader, csv

    from traces.reading import BLOCK_BYTES, line_blocks

    convert = csv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False)
    parse = csv.ParseOptions(ignore_empty_lines=False)
    if reader == "streaming":
        yield from csv.open_csv(
            path, csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False), parse, convert
        )
        return
    whole = csv.ReadOptions(block_size=2 * BLOCK_BYTES, use_threads=False, column_names=list(types))
    for number, block in enumerate(line_blocks(path)):
        lines = block if number else block.partition(b"\n")[2]
        if any(mark in lines for mark in _STRANGE) or lines.count(b"\r") != lines.count(b"\r\n"):
            raise AssertionError("the drawn files have no such line")
        yield from csv.read_csv(BufferReader(lines), whole, parse, convert).to_batches()


def guarded(column: Any, kind: str) -> Any:
    """The same column, of a block, after a look for what pyarrow takes and we refuse."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind != "azure" and pa.types.is_string(column.type):  # 5. and .5 and +5 are decimals to pyarrow
        assert pc.all(pc.match_substring_regex(column, r"^[0-9]+(\.[0-9]+)?$")).as_py()
        return column.cast(pa.decimal128(38, 18))
    if pa.types.is_string(column.type):  # a date alone and zones of other forms are timestamps to pyarrow
        lengths = pc.min_max(pc.binary_length(column))
        assert lengths["min"].as_py() >= 25 and pc.all(pc.ends_with(column, "+00:00")).as_py()
        return column.cast(pa.timestamp("ns", tz="UTC"))
    if pa.types.is_dictionary(column.type):
        lengths = pc.min_max(pc.binary_length(column.dictionary))
        assert lengths["min"].as_py() > 0 and lengths["max"].as_py() <= 1024
    else:
        bounds = pc.min_max(column)
        assert bounds["min"].as_py() >= 0 and bounds["max"].as_py() < 9e9
    return column


def values_of(column: Any) -> Any:
    """A batch's column as ours are: nanoseconds, numbers, codes. ``to_numpy`` would load pandas."""
    import numpy as np
    import pyarrow as pa

    from traces.arrow import numbers_of

    if pa.types.is_dictionary(column.type):
        return numbers_of(column.indices)
    if not pa.types.is_decimal(column.type):
        return numbers_of(column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column)
    halves = np.frombuffer(column.buffers()[1], dtype="<u8")[2 * column.offset :][: 2 * len(column)]
    low, rest = halves[0::2], halves[1::2] % 10**9  # 128 bits over 10**9, 32 at a time, rounded half up
    quotient = np.zeros(len(column), dtype=np.uint64)
    for word in (low >> 32, low & 0xFFFFFFFF):
        part, rest = np.divmod((rest << 32) + word, np.uint64(10**9))
        quotient = (quotient << 32) + part
    return (quotient + (rest >= 5 * 10**8)).view(np.int64)


def child(reader: str, kind: str, file: str) -> None:
    """Read the file and print the sums of its times and prompt tokens, CPU seconds and peak resident MB."""
    import resource

    import numpy as np

    path = Path(file)
    if reader == "ours":
        from traces.importers import azure, burstgpt
        from traces.times import ISO

        table = azure._read(path, ISO) if kind == "azure" else burstgpt._read(path, "s", False)
        columns = table.columns
    else:
        from traces.reading import Origin

        Origin.of(path)
        types = types_of(kind)
        if reader == "blocks":
            import pyarrow as pa

            types[next(iter(types))] = pa.string()
        parts: dict[str, list[Any]] = {name: [] for name in types}
        for batch in batches(reader, path, types):
            for name, column in zip(types, batch.columns, strict=True):
                column = guarded(column, kind) if reader == "blocks" else column
                parts[name].append(values_of(column))
        columns = {name: np.concatenate(parts.pop(name)) for name in list(parts)}
    used = resource.getrusage(resource.RUSAGE_SELF)
    times_ns = next(iter(columns.values()))
    print(
        int((times_ns - times_ns[0]).sum()),
        int(columns[TOKENS[kind]].sum()),
        used.ru_utime + used.ru_stime,
        used.ru_maxrss / 1024,
    )


def write_decimals(path: Path, rows: int) -> None:
    """The file of ``benchmarks.traces`` with the fractions of a double behind its seconds."""
    from benchmarks.traces import write_file
    from traces.streams import stream

    draw = stream(0, "benchmarks/arrow_csv/decimals")
    whole = path.with_suffix(".whole")
    write_file(whole, rows)
    with whole.open(encoding="utf-8") as source, path.open("w", encoding="utf-8") as file:
        file.write(next(source))
        for line in source:
            second, comma, rest = line.partition(",")
            file.write(f"{int(second) + draw.random()!r}{comma}{rest}")
    whole.unlink()


def write_azure(path: Path, rows: int) -> None:
    """A file in the format of Azure 2024, from a fixed seed."""
    import numpy as np

    from traces.streams import stream

    draw = stream(0, "benchmarks/arrow_csv")
    clock = np.datetime64("2024-05-10", "us")
    with path.open("w", encoding="utf-8") as file:
        file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for start in range(0, rows, 50_000):
            part = min(50_000, rows - start)
            times = clock + np.cumsum(draw.exponential(2e5, part)).astype(int)
            clock = times[-1]
            tokens = zip(draw.geometric(1 / 1000, part).tolist(), draw.geometric(1 / 200, part).tolist())
            for time, (prompt, output) in zip(np.datetime_as_string(times).tolist(), tokens):
                file.write(f"{time.replace('T', ' ')}+00:00,{prompt},{output}\n")


def main(words: list[str]) -> None:
    """Print a line per format and reader."""
    from benchmarks.traces import write_file

    if len(words) > 1:
        raise UserError(f"it takes one number of rows and {words[1]!r} was given too: leave it out")
    rows = count(words[0], "number of rows", "python -m benchmarks.arrow_csv 100000") if words else ROWS
    with TemporaryDirectory() as folder:
        for kind, write in (("burstgpt", write_file), ("decimals", write_decimals), ("azure", write_azure)):
            path = Path(folder) / f"{kind}.csv"
            write(path, rows)
            rows_of_reader: dict[str, list[list[str]]] = {reader: [] for reader in READERS}
            for reader in READERS * ROUNDS:
                child_words = [sys.executable, "-c", _CHILD, reader, kind, str(path)]
                done = subprocess.run(child_words, capture_output=True, text=True, check=True)
                rows_of_reader[reader].append(done.stdout.split())
            if len({tuple(run[:2]) for runs in rows_of_reader.values() for run in runs}) != 1:
                raise AssertionError("the readers disagree")
            for reader, runs in rows_of_reader.items():
                cpu_s = [float(run[2]) for run in runs]
                peak = f"peak {max(float(run[3]) for run in runs):4.0f} MB"
                print(
                    f"{kind:8s} {reader:9s} {min(cpu_s):5.2f} s CPU (median {median(cpu_s):.2f})   {peak}",
                    flush=True,
                )


if __name__ == "__main__":
    command("benchmarks.arrow_csv", __doc__, main)
