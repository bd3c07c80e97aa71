"""Where points run: processes of this machine (loky), a Ray cluster, or Slurm (submitit).

Each launcher yields (point, outcome) as points finish, in any order.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from servetwin.run.crew import crew
from servetwin.sweeps.outcome import PointOutcome, outcome_of
from servetwin.sweeps.points import Point
from servetwin.sweeps.sweep_folder import write_point
from serving.vocabulary.errors import UserError

Finished = Iterator[tuple[Point, PointOutcome]]
LAUNCHERS: Final = ("local", "ray", "slurm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Settings of the launcher. ``folders``: where every point writes its full results, "" for nowhere."""

    launcher: str = "local"
    processes: int = 2
    folders: str = ""
    ray_address: str = ""
    slurm_cluster: str = "slurm"
    slurm_partition: str = ""
    slurm_jobs: int = 8
    scratch: str = ""

    def carry_out(self, points: Sequence[Point]) -> Finished:
        """Run the points. Raises UserError if the launcher is not available."""
        if not points:
            return iter(())
        return {"local": _local, "ray": _ray, "slurm": _slurm}[self.launcher](self, points)

    def folder_of(self, point: Point) -> str:
        """Return the point's own result folder."""
        return str(Path(self.folders) / point.id) if self.folders else ""


def carried_out(point: Point, folder: str) -> tuple[int, PointOutcome]:
    """Run a point in a process of any launcher; return its place among the points, and its outcome."""
    return point.place, outcome_of(point.words, folder)


def _local(launch: Launch, points: Sequence[Point]) -> Finished:
    if launch.processes == 1 or len(points) == 1:
        for point in points:
            yield point, carried_out(point, launch.folder_of(point))[1]
        return
    by_place = {point.place: point for point in points}
    with crew(launch.processes) as submit:
        # In no variable, so that no outcome is kept.
        for done in as_completed([submit(carried_out, point, launch.folder_of(point)) for point in points]):
            place, outcome = done.result()
            yield by_place[place], outcome


def _ray(launch: Launch, points: Sequence[Point]) -> Finished:
    """Run on one actor per CPU of the cluster, so that each imports the simulator once."""
    with _require_extra("ray"):
        import ray
    began = not ray.is_initialized()
    if began:
        with _ray_refused(launch.ray_address):
            ray.init(address=launch.ray_address or None, log_to_driver=False, logging_level="error")
    by_place = {point.place: point for point in points}
    try:
        cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        actor = ray.remote(num_cpus=1)(_Carrier)
        crew = ray.util.ActorPool([actor.remote() for _ in range(min(cpus, len(points)))])
        tasks = [(point, launch.folder_of(point)) for point in points]
        for place, outcome in crew.map_unordered(lambda worker, task: worker.carry_out.remote(*task), tasks):
            yield by_place[place], outcome
    except ray.exceptions.RayActorError as error:
        missing = str(error).strip().rpartition("\n")[2]
        raise UserError(
            f"a process of the Ray cluster ended ({missing}): install this version of servetwin on its "
            "nodes, or give them more memory; the same command goes on with what is finished"
        ) from error
    finally:
        if began:
            ray.shutdown()


class _Carrier:
    """Implementation of a Ray actor, a process that runs many points."""

    def carry_out(self, point: Point, folder: str) -> tuple[int, PointOutcome]:
        return carried_out(point, folder)


@contextmanager
def _ray_refused(address: str) -> Iterator[None]:
    try:
        yield
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(
            f"ray.address={address} cannot be reached ({str(error).partition(chr(10))[0]}): write "
            "ray.address=auto for the cluster of this machine, or leave it out to start one"
        ) from error


def _slurm(launch: Launch, points: Sequence[Point]) -> Finished:
    """Run ``slurm_jobs`` jobs of an array; job k takes every ``slurm_jobs``-th point."""
    with _require_extra("slurm"):
        import submitit
    executor = submitit.AutoExecutor(folder=launch.scratch, cluster=launch.slurm_cluster)
    executor.update_parameters(
        name="servetwin", cpus_per_task=1, timeout_min=24 * 60,
        **({"slurm_partition": launch.slurm_partition} if launch.slurm_partition else {}),
    )  # fmt: skip
    count = min(launch.slurm_jobs, len(points))
    shares = [tuple(points[first::count]) for first in range(count)]
    folders = [tuple(map(launch.folder_of, share)) for share in shares]
    names = [str(Path(launch.scratch) / f"{uuid4().hex}.jsonl") for _ in shares]
    by_place = {point.place: point for point in points}
    try:
        jobs = executor.map_array(all_carried_out, shares, folders, names)
    except (OSError, RuntimeError) as error:
        raise UserError(f"launcher=slurm cannot submit ({error}): run it where sbatch is") from error
    for job in submitit.helpers.as_completed(jobs):
        for place, outcome in job.result():
            yield by_place[place], outcome


def all_carried_out(
    points: Sequence[Point], folders: Sequence[str], name: str
) -> list[tuple[int, PointOutcome]]:
    """Run points in one job; the file ``name`` has the finished ones, even if the job is killed."""
    outcomes = []
    with Path(name).open("w", encoding="utf-8") as file:
        for point, folder in zip(points, folders, strict=True):
            outcomes.append(carried_out(point, folder))
            write_point(file, point, outcomes[-1][1])
    return outcomes


@contextmanager
def _require_extra(extra: str) -> Iterator[None]:
    """Wrap the import of a package that only this launcher needs."""
    try:
        yield
    except ImportError as error:
        raise UserError(f"launcher={extra} needs {error.name}: pip install 'servetwin[{extra}]'") from error
