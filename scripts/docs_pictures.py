"""The pictures of README and of docs/papers/GALLERY.md, from their commands.

``python -m scripts.docs_pictures NAME``.

Needs a browser (``scripts/browser.py``) and pillow, which matplotlib brings.
"""

import io
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURES: Final = ROOT / "docs" / "pictures"
WIDTH: Final = 1000
NARROW: Final = 390  # a phone held upright
ONE_CHART: Final = 620  # charts of a page lie below each other
TALL: Final = 1500
MOST_BYTES: Final = 60_000
_COLORS: Final = 64  # of charts and text: a third of the bytes
# Leaves the answer, and the sections with these headings or classes, on a page, and says how high they are.
_ALONE: Final = """(()=>{const wanted=%s,main=document.querySelector('main');let shown=false;
for(const one of [...main.children]){
if(one.tagName==='H2')shown=wanted.some(start=>one.textContent.startsWith(start));
if(one.tagName==='FOOTER'||!(shown||['answer',...wanted].includes(one.className)))one.style.display='none'}
main.style.padding='6px 22px 22px';return Math.ceil(main.getBoundingClientRect().height)})()"""


@dataclass(frozen=True, slots=True)
class Picture:
    """commands: run one after the other. page: where what is shown lies; parts: its headings or classes.

    Without parts the page from its top, as far as ``TALL``.
    """

    name: str
    commands: tuple[str, ...]
    page: str
    parts: tuple[str, ...]
    width: int = WIDTH


_BETTER: Final = "trace=azure_conv_like trace.requests=2000 trace.rate_per_s=20 cluster=a100_x4 journal=true"
GALLERY: Final = (
    Picture(
        "how_many",
        ("servetwin plan trace=azure_conv model=llama3_70b gpu=h100 slo.ttft_p99_ms=500 out=out/how_many",),
        "out/how_many/report.html",
        ("Layouts that meet it", "What a size gives"),
    ),
    Picture(
        "which_system",
        (
            "servetwin sweep system=serverlessllm,allcache,blitzscale 'seed=range(0,8)' cluster=blitz_b "
            "trace=burstgpt_like trace.rate_scale=2 system.instances.prefill_min=2 out=out/which_system",
        ),
        "out/which_system/report.html",
        ("Every setting",),
    ),
    Picture(
        "which_setting",
        (
            "servetwin sweep engine.max_num_seqs=16,24,32,48,64,128 seed=0,1,2 trace=azure_conv_like "
            "trace.requests=1000 trace.rate_per_s=20 cluster=a100_x4 "
            '"metrics=[ttft_ms.p99,tpot_ms.mean]" out=out/which_setting',
        ),
        "out/which_setting/report.html",
        ("By ",),
    ),
    Picture(
        "is_it_better",
        (
            f"servetwin simulate {_BETTER} out=out/usual",
            f"servetwin simulate {_BETTER} system/dispatch=round_robin out=out/other",
            "servetwin compare out/usual out/other page=out/is_it_better.html",
        ),
        "out/is_it_better.html",
        ("Numbers", "What differs", "First decision"),
    ),
    Picture(
        "how_fast_to_load",
        (
            "servetwin sweep system=blitz_network,blitz_multicast,blitzscale "
            "cluster.nic_gbps=1,2,5,10,25,50,100,200 cluster=blitz_b_8x8 "
            "trace=azure_conv trace.window=busiest trace.window_s=300 trace.rate_scale=4 "
            'slo.ttft_ms=1000 "metrics=[slo.attainment]" out=out/how_fast_to_load',
        ),
        "out/how_fast_to_load/report.html",
        ("By ",),
    ),
    Picture(
        "what_happened",
        (
            "servetwin simulate system=allcache cluster=blitz_b trace=burstgpt_like trace.rate_scale=2 "
            "system.instances.prefill_min=2 series.period_s=1 out=out/what_happened",
        ),
        "out/what_happened/report.html",
        ("Use over time",),
    ),
)
README: Final = (
    Picture(
        "report",
        (
            "servetwin simulate system=blitzscale cluster=blitz_b trace=burstgpt_like trace.rate_scale=3 "
            "system.instances.prefill_min=2 journal=true out=out/blitz",
        ),
        "out/blitz/report.html",
        ("tiles", "Latency"),
    ),
    Picture(
        "attainment_over_load",
        (
            "servetwin sweep system=serverlessllm,allcache,blitzscale trace.rate_scale=1,2,3,4 seed=0,1,2 "
            'cluster=blitz_b trace=burstgpt_like system.instances.prefill_min=2 "metrics=[slo.attainment]" '
            "out=out/load",
        ),
        "out/load/report.html",
        ("By ",),
        ONE_CHART,
    ),
)
# The same pages where there is little room.
PHONE: Final = tuple(
    replace(one, name=f"{one.name}_{NARROW}", parts=(), width=NARROW)
    for one in GALLERY
    if one.name in ("is_it_better", "what_happened")
)
EVERY: Final = README + GALLERY + PHONE


def seconds_of(picture: Picture, folder: Path) -> tuple[float, float]:
    """Run its commands there; how long they took, and on how much CPU time."""
    begun, used = time.perf_counter(), _children_s()
    for command in picture.commands:
        program, *words = shlex.split(command)
        done = subprocess.run([str(Path(sys.executable).with_name(program)), *words, "-q"], cwd=folder)
        if done.returncode:
            sys.exit(f"docs_pictures: exit status {done.returncode} of {command}")
    return time.perf_counter() - begun, _children_s() - used


def _children_s() -> float:
    """CPU time of the processes that ended."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def draw(picture: Picture, folder: Path) -> int:
    """Its picture from the page that is there; bytes written."""
    from scripts import browser

    program = browser.installed()
    if program is None:
        sys.exit(f"docs_pictures: no browser here: install one of {', '.join(browser.BROWSERS)}")
    shot = folder / "shot.png"
    with browser.Browser(program) as opened:
        look = opened.look(folder / picture.page, picture.width)
        height = opened.evaluate(_ALONE % list(picture.parts)) if picture.parts else min(look.height, TALL)
        opened.picture(shot, picture.width, int(height))
    data = with_few_colors(shot)
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / f"{picture.name}.png").write_bytes(data)
    return len(data)


def with_few_colors(shot: Path) -> bytes:
    """Return a photograph of charts and text as a PNG of ``_COLORS`` colours."""
    from PIL import Image

    small, data = Image.open(shot).convert("RGB").quantize(_COLORS, Image.Quantize.MAXCOVERAGE), io.BytesIO()
    small.save(data, "PNG", optimize=True)
    return data.getvalue()


def main(names: list[str]) -> int:
    """Exit status 0, or 2 for a name there is not."""
    chosen = [one for one in EVERY if not names or one.name in names]
    if len(chosen) < len(names):
        print(f"docs_pictures takes {', '.join(one.name for one in EVERY)}", file=sys.stderr)
        return 2
    for one in chosen:
        with tempfile.TemporaryDirectory() as folder:
            seconds, cpu_s = seconds_of(one, Path(folder))
            size = draw(one, Path(folder))
        print(f"{one.name}: {seconds:.1f} s, {cpu_s:.1f} s of CPU, {size:,} bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
