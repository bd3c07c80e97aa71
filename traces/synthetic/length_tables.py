"""Published and measured token lengths, by name."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from traces.errors import TraceError
from traces.synthetic.lengths import Knot, Lengths, LengthTable, ZipfLengths
from traces.workload import MAX_TOKENS

_LLUMNIX: Final = "Llumnix (OSDI 2024), Table 1: mean, P50, P80, P95, P99; least and most tokens are ours"
_AZURE: Final = (
    "Azure LLM inference trace 2023 (CC-BY, github.com/Azure/AzurePublicDataset), numpy.quantile and mean of"
)
_PUBLISHED: Final = (0.5, 0.8, 0.95, 0.99)
_LLUMNIX_ROWS: Final = 10_000
LLUMNIX_MOST_TOKENS: Final = 6144  # "maximum 6k" for S, M and L; taken for the two real prompt lengths too
_ARTEFACT: Final = "Llumnix artefact (branch osdi24ae): Zipf over ranks 1 to 2 * mean - 1, scaled to the mean"
# The table says nothing of the longest answers; P99 is 1,234 and 964, and 6k would put a fifth of all
# tokens of the last per cent where no answer of that model is.
ANSWER_MOST_TOKENS: Final = 2048

# Measured on the 19,366 rows of AzureLLMInferenceTrace_conv.csv (Azure LLM inference trace 2023, CC-BY;
# github.com/Azure/AzurePublicDataset): numpy.quantile, rounded to whole tokens, and the mean.
CONV_REQUESTS: Final = 19_366
CONV_PROMPT_MEAN: Final = 1154.7
CONV_OUTPUT_MEAN: Final = 211.1
# (probability, prompt tokens, output tokens), dense where the file has steps.
_CONV_QUANTILES: Final = (
    (0, 2, 7),
    (0.01, 29, 16),
    (0.05, 181, 41),
    (0.1, 207, 54),
    (0.15, 372, 67),
    (0.2, 387, 77),
    (0.3, 403, 91),
    (0.35, 414, 96),
    (0.4, 703, 103),
    (0.45, 984, 113),
    (0.5, 1020, 129),
    (0.6, 1071, 177),
    (0.7, 1130, 384),
    (0.75, 1189, 395),
    (0.8, 1315, 400),
    (0.85, 1876, 411),
    (0.9, 2734, 424),
    (0.92, 4073, 429),
    (0.95, 4083, 451),
    (0.98, 4098, 540),
    (0.99, 4142, 601),
    (0.995, 4831, 643),
    (0.999, 6179, 954),
    (0.9999, 7668, 1000),
    (1, 14050, 1000),
)
CONV_PROMPT_KNOTS: Final[tuple[Knot, ...]] = tuple((p, prompt) for p, prompt, _ in _CONV_QUANTILES)
CONV_OUTPUT_KNOTS: Final[tuple[Knot, ...]] = tuple((p, output) for p, _, output in _CONV_QUANTILES)

# The same of the 8,819 rows of AzureLLMInferenceTrace_code.csv.
CODE_REQUESTS: Final = 8_819
CODE_PROMPT_MEAN: Final = 2047.8
CODE_OUTPUT_MEAN: Final = 27.9
_CODE_QUANTILES: Final = (
    (0, 3, 6),
    (0.01, 17, 6),
    (0.05, 75, 6),
    (0.1, 147, 7),
    (0.2, 386, 8),
    (0.3, 770, 9),
    (0.4, 1075, 11),
    (0.5, 1469, 13),
    (0.6, 1909, 16),
    (0.7, 2433, 20),
    (0.8, 3192, 29),
    (0.85, 3920, 39),
    (0.9, 5188, 55),
    (0.92, 5959, 65),
    (0.94, 6585, 79),
    (0.95, 7303, 90),
    (0.96, 7430, 105),
    (0.97, 7435, 128),
    (0.98, 7436, 171),
    (0.99, 7436, 251),
    (0.995, 7436, 359),
    (0.998, 7436, 670),
    (0.999, 7437, 825),
    (0.9995, 7437, 885),
    (1, 7437, 1899),
)


def _llumnix(mean: float, quantiles: Sequence[float], most_tokens: int = LLUMNIX_MOST_TOKENS) -> LengthTable:
    knots = ((0.0, 1.0), *zip(_PUBLISHED, quantiles), (1.0, float(most_tokens)))
    return LengthTable(knots, mean, _LLUMNIX_ROWS, _LLUMNIX)


def _llumnix_zipf(mean: int, alpha: float) -> ZipfLengths:
    """Lengths S, M and L. Their samples in Table 1 have P50 to P99 within 15 % of these."""
    return ZipfLengths(
        mean=mean,
        alpha=alpha,
        ranks=2 * mean - 1,
        most_tokens=LLUMNIX_MOST_TOKENS,
        rows=_LLUMNIX_ROWS,
        source=_ARTEFACT,
    )


LENGTH_TABLES: Final[dict[str, Lengths]] = {
    "sharegpt_in": _llumnix(306, (74, 348, 1484, 3388)),
    "sharegpt_out": _llumnix(500, (487, 781, 988, 1234), ANSWER_MOST_TOKENS),
    "burstgpt_in": _llumnix(830, (582, 1427, 2345, 3549)),
    "burstgpt_out": _llumnix(271, (243, 434, 669, 964), ANSWER_MOST_TOKENS),
    "short": _llumnix_zipf(128, 2.0),
    "medium": _llumnix_zipf(256, 1.5),
    "long": _llumnix_zipf(512, 1.15),
    "azure_conv_in": LengthTable(
        CONV_PROMPT_KNOTS, CONV_PROMPT_MEAN, CONV_REQUESTS, f"{_AZURE} AzureLLMInferenceTrace_conv.csv"
    ),
    "azure_conv_out": LengthTable(
        CONV_OUTPUT_KNOTS, CONV_OUTPUT_MEAN, CONV_REQUESTS, f"{_AZURE} AzureLLMInferenceTrace_conv.csv"
    ),
    "azure_code_in": LengthTable(
        tuple((p, prompt) for p, prompt, _ in _CODE_QUANTILES),
        CODE_PROMPT_MEAN,
        CODE_REQUESTS,
        f"{_AZURE} AzureLLMInferenceTrace_code.csv",
    ),
    "azure_code_out": LengthTable(
        tuple((p, output) for p, _, output in _CODE_QUANTILES),
        CODE_OUTPUT_MEAN,
        CODE_REQUESTS,
        f"{_AZURE} AzureLLMInferenceTrace_code.csv",
    ),
}
"""name -> lengths of one side."""

LENGTH_PAIRS: Final[dict[str, tuple[str, str]]] = {
    "sharegpt": ("sharegpt_in", "sharegpt_out"),
    "burstgpt": ("burstgpt_in", "burstgpt_out"),
    "azure_conv": ("azure_conv_in", "azure_conv_out"),
    "azure_code": ("azure_code_in", "azure_code_out"),
    "ss": ("short", "short"),
    "mm": ("medium", "medium"),
    "ll": ("long", "long"),
    "sl": ("short", "long"),
    "ls": ("long", "short"),
}
"""name -> (prompt table, output table); the last five are the traces S-S to L-S of Llumnix, input first."""


def length_pair(lengths: str) -> tuple[Lengths, Lengths]:
    """The tables of prompt and output lengths that ``lengths`` names: a pair of ``LENGTH_PAIRS``,
    two tables such as ``burstgpt_in+short``, either with other means in tokens such as
    ``azure_conv:1500x300``, or two fixed lengths in tokens such as ``512x128``.

    Raises TraceError when it is none of these.
    """
    spread, colon, means = str(lengths).partition(":")
    if colon and (tokens := fixed_lengths(means)) is not None and fixed_lengths(spread) is None:
        prompt_table, output_table = length_pair(spread)
        return _with_mean(prompt_table, tokens[0]), _with_mean(output_table, tokens[1])
    if str(lengths) in LENGTH_PAIRS:
        prompt, output = LENGTH_PAIRS[str(lengths)]
        return LENGTH_TABLES[prompt], LENGTH_TABLES[output]
    fixed = fixed_lengths(lengths)
    if fixed is not None:
        return _always(fixed[0]), _always(fixed[1])
    names = str(lengths).split("+")
    if len(names) == 2 and all(name in LENGTH_TABLES for name in names):
        return LENGTH_TABLES[names[0]], LENGTH_TABLES[names[1]]
    raise TraceError(
        f"lengths={lengths!r} is unknown: write one of {', '.join(LENGTH_PAIRS)}, two tables of"
        f" {', '.join(LENGTH_TABLES)} joined by +, either with means of your own such as"
        " azure_conv:1500x300, or fixed tokens such as 512x128"
    )


def fixed_lengths(lengths: str) -> tuple[int, int] | None:
    """The tokens of prompt and output that ``1024x128`` names; None if ``lengths`` is no such text."""
    fixed = re.fullmatch(r"([0-9]{1,8})x([0-9]{1,8})", str(lengths))
    if fixed is None:
        return None
    prompt_tokens, output_tokens = int(fixed[1]), int(fixed[2])
    possible = 1 <= prompt_tokens <= MAX_TOKENS and 1 <= output_tokens <= MAX_TOKENS
    return (prompt_tokens, output_tokens) if possible else None


def _with_mean(table: Lengths, mean: float) -> Lengths:
    """The same distribution with every length in proportion, at least one token, so that its mean is this."""
    factor = mean / table.mean
    source = f"{table.source}; scaled to a mean of {mean:g}"
    if isinstance(table, ZipfLengths):
        most_tokens = max(1, round(table.most_tokens * factor))
        return replace(table, mean=mean, most_tokens=most_tokens, source=source)
    knots = tuple((probability, max(1.0, tokens * factor)) for probability, tokens in table.knots)
    return replace(table, knots=knots, mean=mean, source=source)


def _always(tokens: int) -> LengthTable:
    return LengthTable(((0, tokens), (1, tokens)), tokens, _LLUMNIX_ROWS, "one fixed length")
