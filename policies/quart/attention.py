"""The smoother's graph attention (Eq. 4 to 6): predicts the CV at a stage from its neighbours.

Stages are the nodes; a stage's neighbours are itself and the adjacent stages. The weights, learnt from runs,
predict by which factor Whitt's formula is off. Training needs torch, predicting does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import exp, log, log1p, sqrt, tanh
from typing import Any, Final

from policies.quart.cv import propagated, utilization_of
from serving.protocols.stages import PipelineView, StageView

Vector = tuple[float, ...]
Matrix = tuple[Vector, ...]

FEATURES: Final = 5
WIDTH: Final = 8
HIDDEN: Final = 16
SLOPE: Final = 0.2
"""Of LeakyReLU below 0, as graph attention networks have it."""
LEAST_CV: Final = 0.01
"""No logarithm of less is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """W and a of Eq. 4 (a's halves for stage i and for its neighbour), theta, and f of Eq. 6: two layers."""

    transform: Matrix
    own: Vector
    other: Vector
    theta: float
    hidden: Matrix
    hidden_bias: Vector
    output: Vector
    output_bias: float


@dataclass(frozen=True, slots=True)
class Node:
    """The inputs of one stage: its features, and Whitt's CV, which theta weighs."""

    features: Vector
    whitt_cv: float


def nodes_of(first_cv: float, stages: Sequence[StageView]) -> tuple[Node, ...]:
    """One node for each stage, in order."""
    features = []
    for stage, cv in zip(stages, propagated(first_cv, stages), strict=True):
        busy = min(utilization_of(stage), 1.0)
        replicas = 1 / sqrt(max(stage.supply, 1))
        features.append(
            Node((log(max(cv, LEAST_CV)), log(max(first_cv, LEAST_CV)), busy, stage.service_cv, replicas), cv)
        )
    return tuple(features)


def neighbours(index: int, count: int) -> tuple[int, ...]:
    """Indices of the stage and its adjacent stages."""
    return tuple(range(max(index - 1, 0), min(index + 2, count)))


def attention(weights: Weights, index: int, nodes: Sequence[Node]) -> tuple[Vector, Vector]:
    """Eq. 4 and 5: the coefficients of the stage's neighbours, and the stage's new features.

    The paper prints theta CV_i in every term of Eq. 4, where it cancels; here each neighbour k has its own
    CV_k.
    """
    near = neighbours(index, len(nodes))
    seen = [_times(weights.transform, nodes[node].features) for node in near]
    mine = _dot(weights.own, _times(weights.transform, nodes[index].features))
    scores = []
    for one, features in zip(near, seen, strict=True):
        score = mine + _dot(weights.other, features)
        scores.append((score if score > 0 else SLOPE * score) + weights.theta * log1p(nodes[one].whitt_cv))
    top = max(scores)
    parts = [exp(score - top) for score in scores]
    shares = tuple([part / sum(parts) for part in parts])
    mixed = [sum(a * x[row] for a, x in zip(shares, seen, strict=True)) for row in range(len(seen[0]))]
    return shares, tuple(mixed)


def predicted(weights: Weights, nodes: Sequence[Node]) -> tuple[float, ...]:
    """Eq. 6 for each stage: Whitt's CV times the factor that f returns; the first stage's CV is measured."""
    features = [nodes[0].whitt_cv]
    for index in range(1, len(nodes)):
        _, mixed = attention(weights, index, nodes)
        layer = [
            tanh(_dot(row, mixed) + bias)
            for row, bias in zip(weights.hidden, weights.hidden_bias, strict=True)
        ]
        features.append(
            max(nodes[index].whitt_cv, LEAST_CV) * exp(_dot(weights.output, layer) + weights.output_bias)
        )
    return tuple(features)


@dataclass(frozen=True, slots=True)
class GraphAttention:
    """Graph attention as a CV predictor for the smoother."""

    weights: Weights

    def predict(self, view: PipelineView) -> tuple[float, ...]:
        """The predicted CV of each stage, in order."""
        return predicted(self.weights, nodes_of(view.stages[0].arrival_cv, view.stages))


def trained(
    pipelines: Sequence[Sequence[Node]],
    cvs: Sequence[Sequence[float]],
    seed: int = 0,
    steps: int = 3000,
    rate: float = 0.01,
) -> Weights:
    """Weights that bring the logarithms of the predicted CVs close to those of ``cvs`` (least squares).

    The same arguments give the same weights, on the same build of torch.
    """
    import torch  # type: ignore[import-not-found,unused-ignore]  # an extra

    torch.manual_seed(seed)
    columns = _columns(pipelines, cvs)
    own, near, near_cv, absent, target = [torch.tensor(column, dtype=torch.float64) for column in columns]
    sizes = [(WIDTH, FEATURES), (WIDTH,), (WIDTH,), (), (HIDDEN, WIDTH), (HIDDEN,), (HIDDEN,), ()]
    learnt = [(0.3 * torch.randn(size, dtype=torch.float64)).requires_grad_() for size in sizes]
    transform, mine, other, theta, hidden, hidden_bias, output, output_bias = learnt
    optimizer: Any = torch.optim.Adam(learnt, lr=rate, weight_decay=1e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        seen = near @ transform.T
        scores = torch.nn.functional.leaky_relu(
            (own @ transform.T @ mine)[:, None] + seen @ other, negative_slope=SLOPE
        )
        shares = torch.softmax(scores + theta * torch.log1p(near_cv) - 1e9 * absent, dim=1)
        mixed = (shares[:, :, None] * seen).sum(dim=1)
        found = torch.tanh(mixed @ hidden.T + hidden_bias) @ output + output_bias
        loss: Any = ((found - target) ** 2).mean()
        loss.backward()
        optimizer.step()
    return _weights([tensor.detach().tolist() for tensor in learnt])


def _columns(pipelines: Sequence[Sequence[Node]], cvs: Sequence[Sequence[float]]) -> list[list[Any]]:
    """Of each stage but the first: its features, its neighbours', their CVs, which are absent, the target."""
    rows: list[tuple[Any, ...]] = []
    for nodes, measured in zip(pipelines, cvs, strict=True):
        for index in range(1, len(nodes)):
            near = [nodes[neighbour] for neighbour in neighbours(index, len(nodes))]
            lack = 3 - len(near)
            features = [list(node.features) for node in near] + [[0.0] * FEATURES] * lack
            factor = max(measured[index], LEAST_CV) / max(nodes[index].whitt_cv, LEAST_CV)
            rows.append(
                (
                    list(nodes[index].features),
                    features,
                    [node.whitt_cv for node in near] + [0.0] * lack,
                    [0.0] * len(near) + [1.0] * lack,
                    log(factor),
                )
            )
    return [list(column) for column in zip(*rows, strict=True)]


def _weights(weights: list[Any]) -> Weights:
    def rounded(value: Any) -> Any:
        return tuple([rounded(item) for item in value]) if isinstance(value, list) else round(value, 6)

    names = [field.name for field in fields(Weights)]
    return Weights(**{name: rounded(weight) for name, weight in zip(names, weights, strict=True)})


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum([item * other for item, other in zip(left, right, strict=True)])


def _times(matrix: Matrix, vector: Sequence[float]) -> Vector:
    return tuple([_dot(row, vector) for row in matrix])
