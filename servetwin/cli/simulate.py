"""``servetwin simulate``: one run, its summary, and where its results are."""

from collections.abc import Sequence

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import tell, telling
from servetwin.config.compose.compose import load_config
from servetwin.report.table import print_summary
from servetwin.results.result_folder import ResultFolder
from servetwin.run.first_mistake import both, mistake_in
from servetwin.run.progress import progress_bar
from servetwin.run.simulate import simulate as simulated
from serving.vocabulary.errors import PlaceError


def simulate(words: Sequence[str]) -> int:
    """Run without the first word; exit status 0."""
    words, as_json = asked_for_json(words)
    try:
        config = load_config(words, "simulate", alone=True)
        with ResultFolder(config.out, config.overwrite) as folder:
            with progress_bar("simulating") as on_progress:
                summary = simulated(config, folder.path, on_progress)
            target = folder.commit()
    except PlaceError as error:
        raise both(error, mistake_in(words, alone=True)) from error
    where = f"; the results are in {target}"
    if not as_json:
        with telling(where):
            print_summary(summary)
    tell(summary, [f"results in {target} (open report.html)"], as_json, where)
    return 0
