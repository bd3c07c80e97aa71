"""Where real workers run: the keys, what a configuration keeps of them, and what does not go together."""

import pytest

from realexec.launchers.local import LocalLauncher
from realexec.launchers.ray_cluster import RayLauncher
from servetwin.assemble.fleet import launcher_of, transport_of
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import load_resolved, resolved_yaml
from servetwin.config.compose.run_again import twin_of
from serving.vocabulary.errors import UserError


def test_a_run_says_who_starts_its_workers(tmp_path: object) -> None:
    plain = load_config(["out=OUT"], "realexec")
    ray = load_config(["out=OUT", "launcher=ray", "ray.address=10.0.0.7:6379", "device=cuda"], "realexec")
    assert isinstance(launcher_of(plain), LocalLauncher) and isinstance(launcher_of(ray), RayLauncher)
    assert (transport_of(plain), transport_of(ray)) == ("shared_memory", "tcp")
    text = resolved_yaml(ray)
    path = tmp_path / "config.yaml"  # type: ignore[operator]
    path.write_text(text)
    assert load_resolved(path) == ray
    kept = {line.partition(":")[0] for line in resolved_yaml(plain).splitlines()}
    assert not {"launcher", "ray", "device"} & kept
    assert resolved_yaml(twin_of(ray)) == resolved_yaml(twin_of(plain))


@pytest.mark.parametrize(
    ("kind", "words", "part"),
    [
        ("realexec", "launcher=slurm", "launcher=slurm is unknown: write one of local, ray"),
        ("realexec", "ray.address=auto", "read only by launcher=ray"),
        ("realexec", "launcher=ray transport=shared_memory", "write transport=tcp, or leave it out"),
        ("realexec", "device=gpu", "device=gpu is unknown: write cpu, cuda, or cuda:N"),
        ("realexec", "device=cuda:", "device=cuda: is unknown"),
        ("realexec", "device=cuda:1 launcher=ray", "write device=cuda"),
        ("simulate", "launcher=ray", "unknown key 'launcher'"),
        ("simulate", "ray.address=auto", "unknown key 'ray.address'"),
        ("simulate", "device=cuda", "unknown key 'device'"),
    ],
)
def test_what_does_not_go_together_is_refused(kind: str, words: str, part: str) -> None:
    with pytest.raises(UserError, match=part):
        load_config(["out=OUT", *words.split()], kind, alone=True)  # type: ignore[arg-type]
