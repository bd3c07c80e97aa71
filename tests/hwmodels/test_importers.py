"""Published tables become profiles: numbers worked out by hand, every refusal, and the real tables."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.errors import HardwareError
from hwmodels.importers import IMPORTERS, ImportRequest, import_profile
from hwmodels.importers.aiconfigurator_tables import Folder, read_all_reduce, read_products
from hwmodels.importers.lattices import lattices_of
from hwmodels.importers.request import device_notes
from hwmodels.importers.splitwise import read_splitwise
from hwmodels.profiles.profile import Lattice, Profile
from hwmodels.profiles.profile_file import load_profile, save_profile
from hwmodels.step_times.op_table import seconds_by_count
from tests.worlds.profile_tables import (
    A100,
    DENSE_US,
    GRID,
    MLP_OPS,
    OTHER_GRID,
    TOKENS,
    Row,
    attention_rows,
    attention_us,
    layer_rows,
    product_ms,
    write_aiconfigurator,
    write_csv,
    write_llmservingsim,
    write_mlp,
)
from tests.worlds.refusals import refuses

PROFILES = Path(os.environ.get("SERVETWIN_PROFILES", ""))
real = pytest.mark.skipif(
    not (PROFILES / "llmservingsim").is_dir(),
    reason="SERVETWIN_PROFILES names no folder with measured tables",
)
LAYERS = 32


def of_4090(folder: Path, llm: str = "llama3_1_8b", tp: int = 1, version: str | None = None) -> Profile:
    return import_profile(
        "llmservingsim", ImportRequest(path=folder, gpu="rtx4090", llm=llm, tp=tp, engine_version=version)
    )


def of_a100(folder: Path, llm: str = "llama3_8b", tp: int = 1, version: str | None = None) -> Profile:
    return import_profile(
        "aiconfigurator", ImportRequest(path=folder, gpu="a100_80g", llm=llm, tp=tp, engine_version=version)
    )


def measured(lattices: tuple[Lattice, ...]) -> dict[tuple[int, ...], float]:
    """Point -> value of everything some lattice holds; points in several must agree."""
    found: dict[tuple[int, ...], float] = {}
    for lattice in lattices:
        for index in np.argwhere(~np.isnan(lattice.values)):
            point = tuple(axis[at] for axis, at in zip(lattice.axes, index))
            value = float(lattice.values[tuple(index)])
            assert found.setdefault(point, value) == value
    return found


def columns(points: list[tuple[int, ...]]) -> list[np.ndarray]:
    return list(np.array(points).T)


# Lattices


def test_a_product_and_a_product_with_a_cut_corner_are_one_lattice() -> None:
    whole = [(a, b) for a in (1, 2, 4) for b in (8, 16, 32)]
    cut = [(a, b) for a, b in whole if a * b < 128]
    for points in (whole, cut):
        values = np.arange(1.0, len(points) + 1)
        (lattice,) = lattices_of(columns(points), values)
        assert lattice.axes == ((1, 2, 4), (8, 16, 32))
        assert measured((lattice,)) == dict(zip(points, values))


def test_rows_in_any_order_and_repeated_points() -> None:
    (lattice,) = lattices_of(columns([(2, 1), (1, 1), (2, 1)]), np.array([1.0, 5.0, 3.0]))
    assert lattice.axes == ((1, 2), (1,)) and lattice.values.tolist() == [[5.0], [2.0]]


@pytest.mark.parametrize("turned", [False, True])
def test_the_union_of_two_grids_is_two_full_lattices(turned: bool) -> None:
    """Whichever axis they differ on; the line both have is in both."""
    grids = [((1, 2, 4), (0, 8, 16, 32)), ((1, 3, 5), (0, 10, 32))]
    points = sorted({(a, b)[:: -1 if turned else 1] for rows, cols in grids for a in rows for b in cols})
    found = lattices_of(columns(points), np.arange(1.0, len(points) + 1))
    assert len(found) == 2 and not any(np.isnan(lattice.values).any() for lattice in found)
    assert measured(found) == dict(zip(points, np.arange(1.0, len(points) + 1)))


def test_no_row_is_lost_whatever_the_points() -> None:
    draw = np.random.default_rng(5)
    points = sorted({tuple(point) for point in draw.integers(0, 5, (40, 3)).tolist()})
    found = lattices_of(columns(points), np.arange(1.0, len(points) + 1))
    assert measured(found) == dict(zip(points, np.arange(1.0, len(points) + 1)))


# LLMServingSim


def test_llmservingsim_dense_and_head_by_hand(tmp_path: Path) -> None:
    tables = of_4090(write_llmservingsim(tmp_path)).tables
    once = DENSE_US["embedding"] + DENSE_US["final_layernorm"]
    per_layer = sum(DENSE_US.values()) - once + DENSE_US["layernorm"]  # the norm runs twice
    assert tables.dense.counts == TOKENS
    for tokens, seconds in zip(tables.dense.counts, tables.dense.seconds):
        assert seconds == pytest.approx((LAYERS * per_layer + once) * (1 + tokens / 1000) * 1e-6)
    assert tables.head.seconds[0] == pytest.approx(110e-6 * 1.001)
    assert tables.all_reduce is None


def test_llmservingsim_attention_by_hand(tmp_path: Path) -> None:
    tables = of_4090(write_llmservingsim(tmp_path)).tables
    assert [len(part) for part in (tables.decode, tables.prefill, tables.mixed)] == [1, 1, 1]
    assert tables.mixed[0].axes == GRID
    scale = LAYERS * 1e-6
    for (n, kv), seconds in measured(tables.decode).items():
        assert seconds == pytest.approx(attention_us(0, 0, n, kv) * scale)
    for (chunk, kp), seconds in measured(tables.prefill).items():
        assert seconds == pytest.approx(attention_us(chunk, kp, 0, 0) * scale)
    for point, seconds in measured(tables.mixed).items():
        assert seconds == pytest.approx(attention_us(*point) * scale)


def test_llmservingsim_union_of_two_grids(tmp_path: Path) -> None:
    folder = write_llmservingsim(tmp_path)
    rows = attention_rows((GRID, OTHER_GRID))
    write_csv(folder / "tp1" / "attention.csv", rows)
    tables = of_4090(folder).tables
    assert sorted(lattice.axes for lattice in tables.mixed) == sorted((GRID, OTHER_GRID))
    points = {(row["prefill_chunk"], row["kv_prefill"], row["n_decode"], row["kv_decode"]) for row in rows}
    assert set(measured(tables.mixed)) == {point for point in points if point[0] and point[2]}


def test_llmservingsim_skew_by_hand(tmp_path: Path) -> None:
    skew = of_4090(write_llmservingsim(tmp_path)).tables.skew
    assert skew is not None and skew.axes == ((0, 16), (2, 4))
    expected = [[1.0, (3 * 0.2 + 0.6) / 4], [np.nan, 0.0]]  # clipped, weighted, not measured, only high rates
    np.testing.assert_allclose(skew.values, expected)


def test_llmservingsim_stamp(tmp_path: Path) -> None:
    stamp = of_4090(write_llmservingsim(tmp_path)).stamp
    assert (stamp.gpu, stamp.llm, stamp.tp) == ("rtx4090", "llama3_1_8b", 1)
    assert (stamp.engine, stamp.engine_version, stamp.precision) == ("vllm", "0.19.0", "bf16")
    names = [name for name, _ in stamp.files]
    assert names == [
        f"Llama-3.1-8B/{name}"
        for name in (
            "meta.yaml",
            "tp1/dense.csv",
            "tp1/per_sequence.csv",
            "tp1/attention.csv",
            "tp1/skew_fit.csv",
        )
    ]
    assert all(len(sha256) == 64 for _, sha256 in stamp.files)
    assert str(tmp_path) not in repr(stamp)


def test_llmservingsim_without_its_optional_files(tmp_path: Path) -> None:
    folder = write_llmservingsim(tmp_path, meta=None)
    (folder / "tp1" / "skew_fit.csv").unlink()
    rows = [row for row in attention_rows() if not (row["n_decode"] and row["prefill_chunk"])]
    write_csv(folder / "tp1" / "attention.csv", rows)
    found = of_4090(folder, version="0.19.0")
    assert found.tables.mixed == () and found.tables.skew is None
    notes = "; ".join(found.stamp.notes)
    assert "no meta.yaml" in notes and "no skew_fit.csv" in notes


def test_llmservingsim_notes_say_what_was_assumed(tmp_path: Path) -> None:
    folder = write_llmservingsim(tmp_path, tp=2, meta="skew_profile:\n  enabled: false\n")
    notes = "; ".join(of_4090(folder, tp=2).stamp.notes)
    assert "all-reduce between the ranks was not measured" in notes
    assert "meta.yaml says it was not profiled" in notes


def test_qk_norm_counts_twice_per_layer_and_belongs_to_its_model(tmp_path: Path) -> None:
    plain = write_llmservingsim(tmp_path / "a", tp=2, meta=None)
    with_norm = write_llmservingsim(tmp_path / "b", DENSE_US | {"qk_norm": 5.0}, tp=2, meta=None)
    with pytest.raises(HardwareError, match="has an operation qk_norm and llama3_1_8b is without"):
        of_4090(with_norm, tp=2, version="0.19.0")
    with pytest.raises(HardwareError, match="has no operation qk_norm and qwen3_32b has it"):
        of_4090(plain, "qwen3_32b", 2, "0.19.0")
    found = of_4090(with_norm, "qwen3_32b", 2, "0.19.0")
    layers = load_llm("qwen3_32b").layers
    per_layer = sum(DENSE_US.values()) - 4.0 + DENSE_US["layernorm"] + 2 * 5.0
    assert found.tables.dense.seconds[0] == pytest.approx((layers * per_layer + 4.0) * 1.001e-6)
    assert any("qk_norm is assumed" in note for note in found.stamp.notes)


def test_an_operation_nobody_knows_counts_once_per_layer(tmp_path: Path) -> None:
    plain = of_4090(write_llmservingsim(tmp_path / "a"))
    more = of_4090(write_llmservingsim(tmp_path / "b", DENSE_US | {"router": 7.0}))
    extra = more.tables.dense.seconds[0] - plain.tables.dense.seconds[0]
    assert extra == pytest.approx(LAYERS * 7.0 * 1.001e-6)
    assert any("unknown operation router" in note for note in more.stamp.notes)


def rewrite(name: str, rows: list[Row]) -> Callable[[Path], object]:
    return lambda folder: write_csv(folder / "tp1" / name, rows)


def with_row(name: str, **changed: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        frame = pd.read_csv(folder / "tp1" / name).astype(object)
        for column, value in changed.items():
            frame.loc[1, column] = value
        frame.to_csv(folder / "tp1" / name, index=False)

    return change


def without_column(name: str, column: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        pd.read_csv(folder / "tp1" / name).drop(columns=column).to_csv(folder / "tp1" / name, index=False)

    return change


def without_layer(folder: Path) -> None:
    rows = layer_rows({k: v for k, v in DENSE_US.items() if k != "o_proj"}, "tokens", TOKENS)
    write_csv(folder / "tp1" / "dense.csv", rows)


BAD_TABLES = [
    (lambda folder: (folder / "tp1" / "dense.csv").unlink(), r"cannot read .*dense\.csv \(No such file"),
    (lambda folder: (folder / "tp1" / "dense.csv").write_text(""), r"dense\.csv is not a readable table"),
    (without_column("attention.csv", "kv_decode"), r"attention\.csv lacks column 'kv_decode'; it needs"),
    (without_column("dense.csv", "layer"), r"dense\.csv lacks column 'layer'"),
    (with_row("dense.csv", time_us=-1.0), r"dense\.csv row 2: time_us is '-1\.0'; write a time above 0"),
    (with_row("dense.csv", time_us=0), "write a time above 0"),
    (with_row("dense.csv", time_us="fast"), "row 2: time_us is 'fast'; write a time above 0"),
    (with_row("dense.csv", time_us=""), "row 2: time_us is 'nan'; write a time above 0"),
    (with_row("dense.csv", time_us="inf"), "write a time above 0"),
    (with_row("dense.csv", tokens=1.5), r"row 2: tokens is '1\.5'; write a whole number of at least 0"),
    (with_row("dense.csv", tokens=77), r"dense\.csv: tokens=\d+ was measured for some layers only"),
    (with_row("attention.csv", n_decode=-1), "n_decode is '-1'; write a whole number"),
    (without_layer, "dense.csv has no rows with layer=o_proj; it has layer=act_fn"),
    (rewrite("per_sequence.csv", layer_rows({"lm_head": 1.0}, "sequences", (1,))), "layer=sampler"),
    (rewrite("attention.csv", [row for row in attention_rows() if row["prefill_chunk"]]), "no decode rows"),
    (rewrite("attention.csv", [row for row in attention_rows() if row["n_decode"]]), "has no prefill rows"),
    (rewrite("skew_fit.csv", []), r"skew_fit\.csv is not a readable table"),
    (with_row("skew_fit.csv", n_label="many"), "row 2: n_label is 'many'; write n<=NUMBER"),
    (with_row("skew_fit.csv", skew_rate_label="sr<=x%"), "skew_rate_label is 'sr<=x%'; write sr<=NUMBER"),
    (with_row("skew_fit.csv", alpha="nan"), "alpha is 'nan'; write a finite number"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "sentence"), BAD_TABLES)
def test_llmservingsim_refuses_a_bad_table(
    tmp_path: Path, spoil: Callable[[Path], object], sentence: str
) -> None:
    folder = write_llmservingsim(tmp_path)
    spoil(folder)
    refuses(HardwareError, sentence, of_4090, folder)


def test_llmservingsim_refuses_what_is_not_there(tmp_path: Path) -> None:
    folder = write_llmservingsim(tmp_path)
    refuses(HardwareError, r"has no folder tp2 for tp=2; it has tp1", of_4090, folder, tp=2)
    refuses(HardwareError, "tp=3 does not divide", of_4090, folder, tp=3)
    refuses(HardwareError, r"name the folder \.\.\./GPU/organisation/model", of_4090, tmp_path)
    refuses(HardwareError, "not the shape of llama2_7b", of_4090, folder, "llama2_7b")
    with pytest.raises(
        HardwareError, match="was measured on NVIDIA GeForce RTX 4090, not on h100; write gpu=rtx4090"
    ):
        import_profile("llmservingsim", ImportRequest(path=folder, gpu="h100", llm="llama3_8b", tp=1))
    with pytest.raises(HardwareError, match=r"has vllm_version 0\.19\.0; leave engine_version=0\.18 out"):
        of_4090(folder, version="0.18")


def test_llmservingsim_without_a_version_is_refused(tmp_path: Path) -> None:
    folder = write_llmservingsim(tmp_path, meta=None)
    refuses(HardwareError, r"meta\.yaml gives no vllm_version.*write engine_version=VERSION", of_4090, folder)
    assert of_4090(folder, version="0.12.0").stamp.engine_version == "0.12.0"


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", "just text"])
def test_a_meta_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    folder = write_llmservingsim(tmp_path)
    (folder / "meta.yaml").write_text(text, encoding="utf-8")
    refuses(HardwareError, r"meta\.yaml .*take the file as it was published", of_4090, folder)


@pytest.mark.parametrize(
    ("gpu", "device", "sentence"),
    [
        ("a100_80g", A100, None),
        ("a100_80g", "NVIDIA A100 80GB PCIe", None),
        ("rtx_pro_6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", None),
        ("rtx_pro_6000", "RTXPRO6000", None),
        ("a10", A100, "write gpu=a100_80g"),
        ("a100_40g", A100, "write gpu=a100_80g"),
    ],
)
def test_the_device_must_be_the_gpu(gpu: str, device: str, sentence: str | None) -> None:
    if sentence is None:
        assert device_notes(gpu, device, Path("x.csv")) == ()
    else:
        refuses(HardwareError, sentence, device_notes, gpu, device, Path("x.csv"))


def test_a_device_the_catalogue_does_not_know_is_the_users_word() -> None:
    (note,) = device_notes("a100_80g", "Ascend 910B", Path("x.csv"))
    assert "Ascend 910B" in note


# AIConfigurator


def test_aiconfigurator_dense_and_head_by_hand(tmp_path: Path) -> None:
    tables = of_a100(write_aiconfigurator(tmp_path)).tables
    bandwidth = 0.8 * load_gpu("a100_80g").memory_bandwidth_bytes_per_s
    shortest_s = product_ms(1, 2048, 2048) * 1e-3
    for m, seconds in zip(tables.dense.counts, tables.dense.seconds):
        up = product_ms(m, 16384, 4096) * 28672 / 16384  # the nearest to 28672 columns
        down = product_ms(m, 4096, 16384) * 14336 / 16384
        products = product_ms(m, 6144, 4096) + product_ms(m, 4096, 4096) + up + down
        moved = [4 * 8192, 4 * 8192, 2 * (8192 + 2048), 4 * 2048, 3 * 28672]
        per_layer = products * 1e-3 + sum(max(m * size / bandwidth, shortest_s) for size in moved)
        ends = sum(max(m * size / bandwidth, shortest_s) for size in (2 * 8192, 4 * 8192))
        assert seconds == pytest.approx(LAYERS * per_layer + ends)
    head = product_ms(1, 65536, 4096) * 128256 / 65536 * 1e-3
    assert tables.head.seconds[0] == pytest.approx(head)


def test_aiconfigurator_attention_and_all_reduce_by_hand(tmp_path: Path) -> None:
    tables = of_a100(write_aiconfigurator(tmp_path), tp=2).tables
    assert tables.decode[0].axes == ((1, 2, 4, 8, 16), (16, 64, 256))
    assert np.isnan(tables.decode[0].values[-1, -1])
    for (n, context), seconds in measured(tables.decode).items():
        assert seconds == pytest.approx(LAYERS * (0.01 + n * context * 4 * 1e-6) * 1e-3)
    assert tables.prefill[0].axes == ((1, 16, 64, 256), (0,))
    for (new, _), seconds in measured(tables.prefill).items():
        assert seconds == pytest.approx(LAYERS * (0.01 + new**2 * 16 * 1e-8) * 1e-3)
    assert tables.all_reduce is not None and tables.all_reduce.counts == (1, 2, 256)
    for tokens, seconds in zip(tables.all_reduce.counts, tables.all_reduce.seconds):
        assert seconds == pytest.approx(2 * LAYERS * (0.005 + tokens * 4096 * 1e-9) * 1e-3)


def test_one_rank_needs_no_all_reduce_table(tmp_path: Path) -> None:
    folder = write_aiconfigurator(tmp_path)
    (folder / "comm" / "vllm" / "0.14.0" / "custom_allreduce_perf.parquet").unlink()
    assert of_a100(folder).tables.all_reduce is None
    refuses(HardwareError, r"cannot read .*custom_allreduce_perf\.parquet", of_a100, folder, tp=2)


def test_an_all_reduce_of_no_whole_tokens_keeps_its_knots(tmp_path: Path) -> None:
    folder = write_aiconfigurator(tmp_path)
    request = ImportRequest(path=folder, gpu="a100_80g", llm="mistral_24b", tp=2)
    llm = load_llm("mistral_24b")
    curve, _, _ = read_all_reduce(Folder(folder, request), llm)
    assert curve is not None and curve.counts == (1, 2, 204)  # 8192 / 5120 lies between 1 and 2
    for tokens, seconds in zip(curve.counts, curve.seconds):
        assert seconds == pytest.approx(2 * llm.layers * (0.005 + tokens * 5120 * 1e-9) * 1e-3)


def test_missing_heads_are_bridged_by_fewer_heads_at_a_larger_batch(tmp_path: Path) -> None:
    found = of_a100(write_aiconfigurator(tmp_path), "llama2_7b")
    (decode,) = found.tables.decode
    assert decode.axes == ((1, 2, 4), (16, 64, 256))
    assert any("8 and 8 heads at 4 times the batch" in note for note in found.stamp.notes)
    for (n, context), seconds in measured((decode,)).items():
        assert seconds == pytest.approx(LAYERS * (0.01 + 4 * n * context * 8 * 1e-6) * 1e-3)


def test_a_bridge_between_batches_interpolates(tmp_path: Path) -> None:
    def linear(name: str, rows: list[Row]) -> list[Row]:
        if name == "context_attention_perf":
            return [
                row | {"num_heads": 40, "num_key_value_heads": 40} for row in rows if row["num_heads"] == 8
            ]
        if name == "generation_attention_perf":
            return [row | {"latency": 0.01 * row["batch_size"]} for row in rows]  # type: ignore[operator]
        return rows

    (decode,) = of_a100(write_aiconfigurator(tmp_path, linear), "llama2_13b").tables.decode
    assert decode.axes[0] == (1, 2)  # 3 times 5 is within the 16 measured, but 3 is no line
    layers = load_llm("llama2_13b").layers
    np.testing.assert_allclose(decode.values[:, 0], [layers * 5e-5, layers * 10e-5])


def test_aiconfigurator_stamp(tmp_path: Path) -> None:
    stamp = of_a100(write_aiconfigurator(tmp_path), tp=2).stamp
    assert (stamp.engine, stamp.engine_version, stamp.precision) == ("vllm", "0.14.0", "bf16")
    assert stamp.files[0][0] == "a100_sxm/gemm/vllm/0.14.0/gemm_perf.parquet"
    assert len(stamp.files) == 4
    assert any("product n=14336 k=4096 was not measured: that of n=16384" in note for note in stamp.notes)


def test_a_product_beyond_a_factor_of_two_is_refused(tmp_path: Path) -> None:
    folder = write_aiconfigurator(tmp_path)
    products, _ = read_products(
        Folder(folder, ImportRequest(path=folder, gpu="a100_80g", llm="llama3_8b", tp=1))
    )
    assert products.curve(1024, 1024)[0].seconds[0] == pytest.approx(product_ms(1, 2048, 2048) / 4e3)
    for n, k in ((1023, 4096), (4096, 1023), (131073, 4096), (4096, 32769)):
        with pytest.raises(HardwareError, match=f"no product near n={n} k={k}.*write another tp or model"):
            products.curve(n, k)


def test_a_head_wider_than_any_product_is_several(tmp_path: Path) -> None:
    found = of_a100(write_aiconfigurator(tmp_path, of_64_heads), "qwen2_5_72b", tp=1)
    assert any("152064 columns" in note and "3 products" in note for note in found.stamp.notes)
    assert found.tables.head.seconds[0] == pytest.approx(product_ms(1, 65536, 8192) * 152064 / 65536e3)


def of_64_heads(name: str, rows: list[Row]) -> list[Row]:
    """The tables of attention with the heads of a 72B model in place of 32."""
    if "attention" in name:
        return [
            row | {"num_heads": 64}
            for row in rows
            if (row["num_heads"], row["num_key_value_heads"]) == (32, 8)
        ]
    return rows


def drop(table: str, **values: object) -> Callable[[str, list[Row]], list[Row]]:
    return lambda name, rows: [
        row for row in rows if name != table or any(row[key] != value for key, value in values.items())
    ]


def setting(table: str, **values: object) -> Callable[[str, list[Row]], list[Row]]:
    return lambda name, rows: [{**row, **values} if name == table else row for row in rows]


@pytest.mark.parametrize(
    ("change", "tp", "sentence"),
    [
        (setting("gemm_perf", latency=-1.0), 1, "gemm_perf.parquet row 1: latency is '-1.0'; write a time"),
        (setting("gemm_perf", gemm_dtype="fp8"), 1, "no rows with gemm_dtype=bfloat16; it has gemm_dtype=f"),
        (drop("gemm_perf", n=16384), 1, "has no product near"),
        (drop("context_attention_perf", num_heads=32), 1, "no rows with num_heads=32; it has num_heads=8"),
        (drop("generation_attention_perf", num_heads=16), 2, "generation.* no rows with num_heads=16"),
        (setting("generation_attention_perf", head_dim=64), 1, "no rows with head_dim=128; it has head_dim"),
        (drop("custom_allreduce_perf", backend="vllm_graph"), 2, "no rows with backend=vllm_graph"),
        (setting("custom_allreduce_perf", num_gpus=8), 2, "no rows with num_gpus=2; it has num_gpus=8"),
        (setting("custom_allreduce_perf", message_size=64), 2, "no message as large as one token"),
        (setting("gemm_perf", device="NVIDIA H100 SXM"), 1, "was measured on NVIDIA H100 SXM, not on"),
    ],
)  # fmt: skip
def test_aiconfigurator_refuses(
    tmp_path: Path, change: Callable[[str, list[Row]], list[Row]], tp: int, sentence: str
) -> None:
    folder = write_aiconfigurator(tmp_path, change)
    refuses(HardwareError, sentence, of_a100, folder, tp=tp)


def test_aiconfigurator_versions(tmp_path: Path) -> None:
    refuses(HardwareError, "has no folder gemm/vllm/VERSION", of_a100, tmp_path)
    folder = write_aiconfigurator(tmp_path)
    with pytest.raises(HardwareError, match=r"has no vllm 0\.15\.0; write engine_version=0\.14\.0"):
        of_a100(folder, version="0.15.0")
    write_aiconfigurator(tmp_path, version="0.15.0")
    refuses(HardwareError, r"has several versions; write engine_version=0\.15\.0", of_a100, folder)
    assert of_a100(folder, version="0.14.0").stamp.engine_version == "0.14.0"


# Vidur


def vidur(tmp_path: Path, llm: str = "llama3_8b", tp: int = 1, **changed: object) -> Profile:
    path = write_mlp(tmp_path / "Meta-Llama-3-8B" / "mlp.csv", **changed)
    others = write_aiconfigurator(tmp_path)
    return import_profile(
        "vidur",
        ImportRequest(path=path, gpu="a100_80g", llm=llm, tp=tp, engine_version=None, aiconfigurator=others),
    )


@pytest.mark.parametrize("tp", [1, 2])
def test_vidur_by_hand(tmp_path: Path, tp: int) -> None:
    found = vidur(tmp_path, tp=tp)
    per_layer = sum(range(2, len(MLP_OPS) + 1)) + len(MLP_OPS)  # operations 1 to 9, the addition once more
    for tokens, seconds in zip(found.tables.dense.counts, found.tables.dense.seconds):
        # 1 for the embedding, 2 for the last norm
        assert seconds == pytest.approx((LAYERS * per_layer + 1 + 2) * 1e-6 * tokens / tp)
    alone = of_a100(tmp_path / "a100_sxm", tp=tp)
    for name in ("head", "all_reduce"):
        assert getattr(found.tables, name) == getattr(alone.tables, name)
    assert measured(found.tables.decode) == measured(alone.tables.decode)
    assert found.stamp.files[0][0] == "Meta-Llama-3-8B/mlp.csv"
    assert found.stamp.engine_version == "0.14.0" and found.stamp.precision == "fp16"


def test_vidur_refuses(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match="has n_kv_head=8 and llama2_7b has 32; write the model"):
        vidur(tmp_path, "llama2_7b")
    with pytest.raises(HardwareError, match=r"no rows with num_tensor_parallel_workers=4; it has .*=1, 2"):
        vidur(tmp_path, tp=4)
    with pytest.raises(HardwareError, match=r"time_stats\.add\.median is '-1\.0'; write a time above 0"):
        vidur(tmp_path, **{"time_stats.add.median": -1.0})
    with pytest.raises(HardwareError, match="write aiconfigurator=FOLDER"):
        import_profile(
            "vidur", ImportRequest(path=tmp_path / "mlp.csv", gpu="a100_80g", llm="llama3_8b", tp=1)
        )


# Splitwise


def splitwise_rows() -> list[Row]:
    shared = {"model": "llama2-70b", "token_size": 128, "prompt_time": 200.0, "token_time": 50.0}
    keys = ("hardware", "tensor_parallel", "batch_size", "prompt_size")
    cases = [
        ("a100-80gb", 2, 1, 512), ("a100-80gb", 2, 4, 1024), ("a100-80gb", 2, 64, 512),
        ("a100-80gb", 8, 64, 512), ("h100-80gb-pcap", 2, 1, 512),
    ]  # fmt: skip
    return [dict(zip(keys, case)) | shared for case in cases]


def test_splitwise_by_hand(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "s.csv", splitwise_rows())
    rows, notes = read_splitwise(path, "a100-80gb", 2)
    assert [(row.phase, row.batch, row.count, row.work, row.seconds) for row in rows] == [
        ("prefill", 1, 512, 512**2, 0.2),
        ("prefill", 4, 4096, 4 * 1024**2, 0.2),
        ("decode", 1, 1, 512 + 64, 0.05),
        ("decode", 4, 4, 4 * (1024 + 64), 0.05),
    ]
    assert any("1 impossible rows" in note and "1 synthetic" in note for note in notes)
    assert len(read_splitwise(path, "a100-80gb", 8)[0]) == 2, "64 sequences fit on eight GPUs"


def test_splitwise_refuses(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "s.csv", splitwise_rows())
    for hardware, tp, sentence in (
        ("h100-80gb-pcap", 2, "are synthetic; write hardware=h100-80gb"),
        ("h100-80gb", 2, "no rows with hardware=h100-80gb; it has"),
        ("a100-80gb", 4, "no rows with tensor_parallel=4; it has tensor_parallel=2, 8"),
    ):
        refuses(HardwareError, sentence, read_splitwise, path, hardware, tp)
    write_csv(path, splitwise_rows()[2:3])
    with pytest.raises(HardwareError, match="has no plausible rows for hardware=a100-80gb tp=2"):
        read_splitwise(path, "a100-80gb", 2)


def test_a_format_that_is_none_is_refused_with_a_suggestion() -> None:
    request = ImportRequest(path=Path("x"), gpu="a100_80g", llm="llama3_8b", tp=1)
    with pytest.raises(HardwareError, match="unknown profile format 'vidor'; write 'vidur' or another of"):
        import_profile("vidor", request)
    refuses(HardwareError, "holds whole iterations", import_profile, "splitwise", request)
    assert list(IMPORTERS) == sorted(IMPORTERS)


# The published tables

SIM = PROFILES / "llmservingsim"
AIC = PROFILES / "aiconfigurator" / "a100_sxm"
POWERS, BETWEEN = (8, 12, 8, 11), (12, 11, 8, 10)
VIDUR = {
    "llama2_7b": "meta-llama/Llama-2-7b-hf",
    "llama3_8b": "meta-llama/Meta-Llama-3-8B",
    "qwen_72b": "Qwen/Qwen-72B",
}


@real
@pytest.mark.parametrize(
    ("folder", "gpu", "llm", "tp", "version", "mixed"),
    [
        ("RTX4090/meta-llama/Llama-3.1-8B", "rtx4090", "llama3_1_8b", 1, None, [POWERS]),
        ("RTXPRO6000/meta-llama/Llama-3.1-8B", "rtx_pro_6000", "llama3_8b", 1, None, [POWERS, BETWEEN]),
        ("RTXPRO6000/Qwen/Qwen3-32B", "rtx_pro_6000", "qwen3_32b", 2, "0.19.0", [POWERS, BETWEEN]),
    ],
)
def test_real_llmservingsim(
    tmp_path: Path,
    folder: str,
    gpu: str,
    llm: str,
    tp: int,
    version: str | None,
    mixed: list[tuple[int, ...]],
) -> None:
    found = import_profile(
        "llmservingsim", ImportRequest(path=SIM / folder, gpu=gpu, llm=llm, tp=tp, engine_version=version)
    )
    tables = found.tables
    assert sorted(lattice.values.shape for lattice in tables.mixed) == mixed
    rows = pd.read_csv(SIM / folder / f"tp{tp}" / "attention.csv")
    layers = load_llm(llm).layers
    bridged = [note for note in found.stamp.notes if "times are bad" in note]
    said = {id(tables.mixed): 1} if gpu == "rtx_pro_6000" else {}
    assert [note.startswith("mixed attention: 1 of ") for note in bridged] == [True] * len(said)
    kinds = (
        (tables.decode, rows.prefill_chunk == 0, ["n_decode", "kv_decode"]),
        (tables.prefill, rows.n_decode == 0, ["prefill_chunk", "kv_prefill"]),
        (
            tables.mixed,
            (rows.prefill_chunk > 0) & (rows.n_decode > 0),
            ["prefill_chunk", "kv_prefill", "n_decode", "kv_decode"],
        ),
    )
    for lattices, mask, axes in kinds:
        assert not any(np.isnan(lattice.values).any() for lattice in lattices)
        part = rows[mask]
        expected = dict(zip(zip(*(part[axis] for axis in axes)), part.time_us * 1e-6 * layers))
        found_s = measured(lattices)
        other = [point for point, seconds in expected.items() if found_s[point] != pytest.approx(seconds)]
        assert found_s.keys() == expected.keys() and len(other) == said.get(id(lattices), 0)
    digest = save_profile(found, tmp_path / "p.json")
    assert load_profile(tmp_path / "p.json").digest == digest


@real
@pytest.mark.parametrize(("llm", "tp"), [("llama2_7b", 1), ("llama3_8b", 1), ("qwen_72b", 4)])
def test_real_vidur_is_the_sum_of_operations_it_was_before(tmp_path: Path, llm: str, tp: int) -> None:
    """Against the table of sums of operations that was worked out from the same files by another program."""
    path = PROFILES / "vidur" / "compute" / "a100" / VIDUR[llm] / "mlp.csv"
    found = import_profile(
        "vidur",
        ImportRequest(path=path, gpu="a100_80g", llm=llm, tp=tp, engine_version=None, aiconfigurator=AIC),
    )
    save_profile(found, tmp_path / "p.json")
    tables = found.tables
    sums = pd.read_csv(PROFILES / "iteration_times_shared.csv")
    sums = sums[
        (sums.model == VIDUR[llm].split("/")[1].removesuffix("-hf").removeprefix("Meta-")) & (sums.tp == tp)
    ]
    decode = sums[sums.phase == "decode"]
    assert len(decode) > 10
    dense = np.interp(sums.tokens, tables.dense.counts, tables.dense.seconds) * 1e3
    # The last norm is new, 0.02 to 0.05 % of all.
    np.testing.assert_allclose(dense, sums.t_linear_ms + sums.t_embed_ms, rtol=1e-3)
    head = np.interp(sums.batch, tables.head.counts, tables.head.seconds) * 1e3
    np.testing.assert_allclose(head, sums.t_lmhead_ms, rtol=1e-4)
    if tables.all_reduce is not None:
        reduce = np.interp(sums.tokens, tables.all_reduce.counts, tables.all_reduce.seconds) * 1e3
        np.testing.assert_allclose(reduce, sums.t_allreduce_ms, rtol=1e-3)
    points = measured(tables.decode)
    attention = [points[n, context] * 1e3 for n, context in zip(decode.batch, decode.cached_context_per_seq)]
    np.testing.assert_allclose(attention, decode.t_attn_ms, rtol=1e-4)


@real
@pytest.mark.parametrize(
    ("llm", "tp"),
    [("llama3_70b", 4), ("qwen2_5_72b", 4), ("mistral_24b", 1), ("llama2_13b", 1), ("qwen3_32b", 2)],
)
def test_real_aiconfigurator_composes_other_models(tmp_path: Path, llm: str, tp: int) -> None:
    found = of_a100(AIC, llm, tp)
    save_profile(found, tmp_path / "p.json")
    weights_s = load_llm(llm).weight_bytes / tp / load_gpu("a100_80g").memory_bandwidth_bytes_per_s
    one_token_s = found.tables.dense.seconds[0] + found.tables.head.seconds[0]
    assert weights_s < one_token_s < 1.6 * weights_s, "one token reads every weight once"


@real
@pytest.mark.laws
def test_real_products_are_scaled_as_the_catalogue_says() -> None:
    """Measured products of at least 1,024 by 1,024 against what the nearest other one would give them."""
    products, _ = read_products(Folder(AIC, ImportRequest(path=AIC, gpu="a100_80g", llm="llama3_8b", tp=1)))
    counts = products.table.counts
    shapes = np.unique(np.stack([counts["n"], counts["k"]], axis=1), axis=0)
    errors = []
    for n, k in shapes[(shapes >= 1024).all(axis=1)].tolist():
        there, _ = products.curve(n, k)
        others = type(products)(products.table.where((counts["n"] != n) | (counts["k"] != k)))
        errors.append(np.abs(np.array(others.curve(n, k)[0].seconds) / np.array(there.seconds) - 1.0))
    assert np.mean(errors) * 100 == pytest.approx(6.9, abs=0.05)
    assert np.percentile(errors, 95) * 100 == pytest.approx(18.8, abs=0.1)


@real
def test_real_aiconfigurator_against_vidur_as_the_catalogue_says() -> None:
    """Linear operations composed of products against those measured for the model itself."""
    few, many = [], []
    for (llm, folder), tp in zip(VIDUR.items(), (1, 1, 4)):
        path = PROFILES / "vidur" / "compute" / "a100" / folder / "mlp.csv"
        own = import_profile(
            "vidur",
            ImportRequest(path=path, gpu="a100_80g", llm=llm, tp=tp, engine_version=None, aiconfigurator=AIC),
        ).tables.dense
        composed = of_a100(AIC, llm, tp).tables.dense
        for tokens, seconds in zip(composed.counts, composed.seconds):
            if tokens <= own.counts[-1]:
                error = seconds / seconds_by_count(own)[tokens] - 1.0
                (few if tokens <= 512 else many).append(round(float(error) * 100))
    assert (min(few), max(few)) == (-15, 18)
    assert (min(many), max(many)) == (-21, -9)


@real
def test_real_all_reduce_switches_to_nccl_at_8_mib() -> None:
    """512 tokens of 8,192 numbers are 8 MiB; up to there the slope of 2 to 4 MiB goes on."""
    curve = of_a100(AIC, "qwen2_5_72b", 4).tables.all_reduce
    assert curve is not None
    seconds = dict(zip(curve.counts, curve.seconds))
    slope = (seconds[256] - seconds[128]) / 128
    assert seconds[511] == pytest.approx(seconds[256] + 255 * slope, rel=1e-3)
    assert seconds[512] == pytest.approx(0.117959e-3 * 160, rel=1e-5)
    assert seconds[512] > 1.5 * seconds[511]


@real
@pytest.mark.parametrize(("hardware", "tp", "rows"), [("a100-80gb", 2, 200), ("h100-80gb", 8, 210)])
def test_real_splitwise(hardware: str, tp: int, rows: int) -> None:
    found, _ = read_splitwise(PROFILES / "splitwise_llama2-70b_tp2_tp8.csv", hardware, tp)
    assert len(found) == rows and {row.phase for row in found} == {"prefill", "decode"}
